"""Fine-tuning: one task at a time."""

from typing import TYPE_CHECKING, Any

from ernie.errors import nearest

if TYPE_CHECKING:
    from finetune.from_python import fine_tune

__all__ = ["fine_tune"]

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Import `fine_tune` when it is asked for: commands of this package do without its modules."""
        if name in __all__:
            from finetune.from_python import fine_tune

            return fine_tune
        raise AttributeError(f"module 'finetune' has no attribute '{name}'.{nearest(name, __all__)}")
