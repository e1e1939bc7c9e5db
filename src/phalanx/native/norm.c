/* Batch norm in training with what follows it: an addition, an activation. Each pass over the values does all it can.

   Pixels are rows of `channels` values (channels_last), float32 or bf16; sums are float32 within a part of the rows and
   double beyond, always over the same parts, so that the number of threads does not change a result.

   Tensors larger than the cache are written past it: else the memory's old content would be read first. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX__)
#include <immintrin.h>
#endif

enum { MAX_PARTS = 64, LEAST_ROWS = 128, TOGETHER = 4 };
enum { LINE = 64, BUFFER = 8192, LARGE = 6 << 20 }; /* bytes */

/* Whether rows of so many bytes, `bytes` in all, are to be written past the cache. */
static inline int passes_cache(const void *to, int64_t bytes, int64_t row) {
#if defined(__AVX__)
    return bytes >= LARGE && row <= BUFFER && row % LINE == 0 && (uintptr_t)to % LINE == 0;
#else
    (void)to, (void)bytes, (void)row;
    return 0;
#endif
}

/* Whole lines, written past the cache. */
static inline void pass_cache(void *to, const void *from, int64_t bytes) {
#if defined(__AVX512F__)
    for (int64_t i = 0; i < bytes; i += LINE)
        _mm512_stream_si512((__m512i *)((char *)to + i), _mm512_load_si512((const char *)from + i));
#elif defined(__AVX__)
    for (int64_t i = 0; i < bytes; i += LINE / 2)
        _mm256_stream_si256((__m256i *)((char *)to + i), _mm256_load_si256((const __m256i *)((const char *)from + i)));
#else
    memcpy(to, from, (size_t)bytes);
#endif
}

/* Other threads see what was written past the cache before they see anything later. */
static inline void settle(void) {
#if defined(__AVX__)
    _mm_sfence();
#endif
}

static inline int64_t parts_of(int64_t rows) {
    int64_t parts = rows / LEAST_ROWS;
    return parts < 1 ? 1 : parts > MAX_PARTS ? MAX_PARTS : parts;
}

/* What the parts' two sums of a channel come to. */
static inline void add_up(const float *sums, int64_t parts, int64_t channels, int64_t c, double *first, double *second) {
    *first = *second = 0;
    for (int64_t part = 0; part < parts; part++) {
        *first += sums[part * 2 * channels + c];
        *second += sums[(part * 2 + 1) * channels + c];
    }
}

/* What may follow the norm. */
enum { NONE, RELU, RELU6, HARDSWISH, SILU, GELU };

#define ALWAYS static inline __attribute__((always_inline))

/* e^x to the last bit or two: 2^n from the exponent's bits, and a polynomial for the rest. */
ALWAYS float exponential(float x) {
    const float magic = 12582912; /* 1.5 · 2^23: what is added to it is rounded to a whole number, its lowest bits */
    x = x < -87 ? -87 : x > 88 ? 88 : x;
    float shifted = x * 1.44269504f + magic, n = shifted - magic, power;
    uint32_t bits;
    memcpy(&bits, &shifted, 4);
    bits = (bits + 127) << 23;
    memcpy(&power, &bits, 4);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f, p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r * r + r + 1) * power;
}

/* The share of a normal distribution that lies below z (Abramowitz & Stegun 7.1.26, to 1e-7), and its density there. */
ALWAYS float below(float z, float *density) {
    float size = z < 0 ? -z : z, t = 1 / (1 + 0.3275911f * 0.70710678f * size), e = exponential(-0.5f * size * size);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float beyond = 0.5f * p * t * e;
    *density = 0.39894228f * e;
    return z < 0 ? beyond : 1 - beyond;
}

ALWAYS float activated(int act, float z) {
    float density;
    switch (act) {
    case RELU: return z < 0 ? 0 : z;
    case RELU6: return z < 0 ? 0 : z > 6 ? 6 : z;
    case HARDSWISH: return z < -3 ? 0 : z > 3 ? z : z * (z + 3) * (1 / 6.0f);
    case SILU: return z / (1 + exponential(-z));
    case GELU: return z * below(z, &density);
    default: return z;
    }
}

/* What of a gradient passes it. */
ALWAYS float passed(int act, float grad, float z) {
    float share, density;
    switch (act) {
    case RELU: return z > 0 ? grad : 0;
    case RELU6: return z > 0 && z < 6 ? grad : 0;
    case HARDSWISH: return z < -3 ? 0 : z > 3 ? grad : grad * (z * (1 / 3.0f) + 0.5f);
    case SILU: share = 1 / (1 + exponential(-z)); return grad * (share * (1 + z * (1 - share)));
    case GELU: share = below(z, &density); return grad * (share + z * density);
    default: return grad;
    }
}

/* DO with each activation as a constant, so that each has its own loops. */
#define FOR_ACT(DO)                                                                                                    \
    switch (act) {                                                                                                     \
    case RELU: DO(RELU); break;                                                                                        \
    case RELU6: DO(RELU6); break;                                                                                      \
    case HARDSWISH: DO(HARDSWISH); break;                                                                              \
    case SILU: DO(SILU); break;                                                                                        \
    case GELU: DO(GELU); break;                                                                                        \
    default: DO(NONE);                                                                                                 \
    }

#define JOIN2(a, b) a##_##b
#define JOIN(a, b) JOIN2(a, b)
#define NAMED(name) JOIN(name, KIND)

static inline float from_f32(float value) { return value; }
static inline float to_f32(float value) { return value; }

static inline float from_bf16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, 4);
    return result;
}

static inline uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return value != value ? 0x7fc0 : rounded;
}

#define KIND f32
#define VALUE float
#define FROM from_f32
#define TO to_f32
#include "norm_kind.h"

#define KIND bf16
#define VALUE uint16_t
#define FROM from_bf16
#define TO to_bf16
#include "norm_kind.h"
