#include "tiles.h"

#if defined(__AVX512BF16__) && defined(__linux__) && (__GNUC__ >= 11 || __clang_major__ >= 12)
#define HAS_TILES 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#endif

namespace ernie {

#ifdef HAS_TILES
#define WITH_TILES __attribute__((target("amx-tile,amx-bf16,amx-int8")))

static bool ask_for_tiles() {
    if (std::getenv("ONEDNN_MAX_CPU_ISA") || std::getenv("DNNL_MAX_CPU_ISA")) return false;
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned ALL = 1u << 22 | 1u << 24 | 1u << 25;  // bfloat16, tiles, bytes
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & ALL) != ALL) return false;
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM: Linux saves the registers of processes that asked
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

bool has_tiles() {
    static const bool found = ask_for_tiles();
    return found;
}

// All eight tiles have 16 rows of 64 bytes.  A constant: to the compiler, the instruction reads the first bytes alone.
struct alignas(64) TileShapes {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE};
};
static const TileShapes shapes;

WITH_TILES void begin_tiles() { _tile_loadconfig(&shapes); }
WITH_TILES void end_tiles() { _tile_release(); }

// Sums in tiles 0 to 3, rows of A in 4 and 5, strips of B in 6 and 7.  The intrinsics are statements with constant tiles.
#define MULTIPLY(E, SUM, ADD)                                                                                             \
    WITH_TILES void multiply_tiles(bool two, const E* A, long stride, const TwoStrips& B, SUM* sums, long ldc) {          \
        const long row = ldc * long(sizeof(SUM)), ldb = B.ldb * 4;                                                        \
        const char* a = reinterpret_cast<const char*>(A);                                                                 \
        SUM* lower = sums + TILE * ldc;                                                                                   \
        _tile_zero(0);                                                                                                    \
        _tile_zero(1);                                                                                                    \
        _tile_zero(2);                                                                                                    \
        _tile_zero(3);                                                                                                    \
        for (long k = 0; k < B.words; k += TILE) {                                                                        \
            _tile_loadd(6, B.left + k * B.ldb, ldb);                                                                      \
            _tile_loadd(7, B.right + k * B.ldb, ldb);                                                                     \
            _tile_loadd(4, a + k * 4, stride);                                                                            \
            ADD(0, 4, 6);                                                                                                 \
            ADD(1, 4, 7);                                                                                                 \
            if (!two) continue;                                                                                           \
            _tile_loadd(5, a + TILE * stride + k * 4, stride);                                                            \
            ADD(2, 5, 6);                                                                                                 \
            ADD(3, 5, 7);                                                                                                 \
        }                                                                                                                 \
        _tile_stored(0, sums, row);                                                                                       \
        _tile_stored(1, sums + STRIP, row);                                                                               \
        if (!two) return;                                                                                                 \
        _tile_stored(2, lower, row);                                                                                      \
        _tile_stored(3, lower + STRIP, row);                                                                              \
    }
MULTIPLY(bf16, float, _tile_dpbf16ps)
MULTIPLY(uint8_t, int32_t, _tile_dpbusd)
#else
bool has_tiles() { return false; }
void begin_tiles() {}
void end_tiles() {}
void multiply_tiles(bool, const bf16*, long, const TwoStrips&, float*, long) {}
void multiply_tiles(bool, const uint8_t*, long, const TwoStrips&, int32_t*, long) {}
#endif

}  // namespace ernie
