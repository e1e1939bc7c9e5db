/* The inverse cosine transform of two blocks at once, bit for bit that of libjpeg's accurate integer method.
 *
 * After Loeffler, Ligtenberg and Moschytz (1989), in 13-bit fixed point; columns first, then rows. Each half of a
 * vector belongs to one of the blocks. Sums of two products are one instruction, so rotations are written as such sums.
 */

#ifndef PHALANX_IDCT_H
#define PHALANX_IDCT_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static inline __m256i factors(int first, int second) {
    return _mm256_set1_epi32((int32_t)((uint32_t)(uint16_t)second << 16 | (uint16_t)first));
}

struct wide { /* eight sums of 32 bits in each half */
    __m256i low, high;
};

static inline struct wide combined(__m256i low, __m256i high, int first, int second) {
    __m256i w = factors(first, second);
    return (struct wide){_mm256_madd_epi16(low, w), _mm256_madd_epi16(high, w)};
}

static inline struct wide plus(struct wide a, struct wide b) {
    return (struct wide){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

static inline struct wide minus(struct wide a, struct wide b) {
    return (struct wide){_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}

static inline __attribute__((always_inline)) __m256i scaled_down(struct wide a, int bits) {
    __m256i half = _mm256_set1_epi32(1 << (bits - 1));
    a.low = _mm256_srai_epi32(_mm256_add_epi32(a.low, half), bits);
    a.high = _mm256_srai_epi32(_mm256_add_epi32(a.high, half), bits);
    return _mm256_packs_epi32(a.low, a.high);
}

static inline struct wide shifted(__m256i a) {
    __m256i zero = _mm256_setzero_si256();
    return (struct wide){_mm256_srai_epi32(_mm256_unpacklo_epi16(zero, a), 3), _mm256_srai_epi32(_mm256_unpackhi_epi16(zero, a), 3)};
}

/* One direction: v[i] holds the i-th value of each of eight columns. */
static inline __attribute__((always_inline)) void invert_columns(__m256i v[8], int bits) {
    struct wide sum = shifted(_mm256_add_epi16(v[0], v[4])), difference = shifted(_mm256_sub_epi16(v[0], v[4]));
    __m256i low, high;
    low = _mm256_unpacklo_epi16(v[2], v[6]), high = _mm256_unpackhi_epi16(v[2], v[6]);
    struct wide turned = combined(low, high, 4433, -10704), other = combined(low, high, 10703, 4433);
    struct wide even0 = plus(sum, other), even3 = minus(sum, other);
    struct wide even1 = plus(difference, turned), even2 = minus(difference, turned);

    __m256i z3 = _mm256_add_epi16(v[7], v[3]), z4 = _mm256_add_epi16(v[5], v[1]);
    low = _mm256_unpacklo_epi16(z3, z4), high = _mm256_unpackhi_epi16(z3, z4);
    struct wide both3 = combined(low, high, -6436, 9633), both4 = combined(low, high, 9633, 6437);
    low = _mm256_unpacklo_epi16(v[7], v[1]), high = _mm256_unpackhi_epi16(v[7], v[1]);
    struct wide odd0 = plus(combined(low, high, -4927, -7373), both3);
    struct wide odd3 = plus(combined(low, high, -7373, 4926), both4);
    low = _mm256_unpacklo_epi16(v[5], v[3]), high = _mm256_unpackhi_epi16(v[5], v[3]);
    struct wide odd1 = plus(combined(low, high, -4176, -20995), both4);
    struct wide odd2 = plus(combined(low, high, -20995, 4177), both3);

    v[0] = scaled_down(plus(even0, odd3), bits);
    v[7] = scaled_down(minus(even0, odd3), bits);
    v[1] = scaled_down(plus(even1, odd2), bits);
    v[6] = scaled_down(minus(even1, odd2), bits);
    v[2] = scaled_down(plus(even2, odd1), bits);
    v[5] = scaled_down(minus(even2, odd1), bits);
    v[3] = scaled_down(plus(even3, odd0), bits);
    v[4] = scaled_down(minus(even3, odd0), bits);
}

static inline __attribute__((always_inline)) void transpose(__m256i v[8]) {
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < 2; n++) {
            b[4 * i + 2 * n] = _mm256_unpacklo_epi32(a[4 * i + n], a[4 * i + 2 + n]);
            b[4 * i + 2 * n + 1] = _mm256_unpackhi_epi32(a[4 * i + n], a[4 * i + 2 + n]);
        }
    for (int i = 0; i < 4; i++) {
        v[2 * i] = _mm256_unpacklo_epi64(b[i], b[4 + i]);
        v[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[4 + i]);
    }
}

struct block {
    const int16_t *coefficients; /* 64, in natural order */
    const int16_t *quantization;
    uint8_t *out; /* eight rows of eight */
    size_t stride;
};

static void store_rows(__m128i rows, const struct block *block, int first) {
    _mm_storel_epi64((__m128i *)(block->out + block->stride * first), rows);
    _mm_storeh_pd((double *)(block->out + block->stride * (first + 1)), _mm_castsi128_pd(rows));
}

/* `first_rows` gathers the bits of how large the blocks' first rows are: see `is_in_range`. */
static void invert_blocks(const struct block *one, const struct block *other, __m256i *first_rows) {
    __m256i v[8];
    for (int i = 0; i < 8; i++) {
        __m256i values = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(one->coefficients + 8 * i))),
            _mm_loadu_si128((const __m128i *)(other->coefficients + 8 * i)), 1);
        __m256i steps = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(one->quantization + 8 * i))),
            _mm_loadu_si128((const __m128i *)(other->quantization + 8 * i)), 1);
        v[i] = _mm256_mullo_epi16(values, steps);
    }
    *first_rows = _mm256_or_si256(*first_rows, _mm256_abs_epi16(v[0]));
    invert_columns(v, 11);
    transpose(v);
    invert_columns(v, 18);
    /* Columns of 16 bits → rows of bytes. */
    __m256i a[4], b[4], c[4];
    for (int i = 0; i < 4; i++) a[i] = _mm256_packs_epi16(v[i], v[i + 4]);
    for (int i = 0; i < 2; i++) {
        b[i] = _mm256_unpacklo_epi8(a[i], a[i + 2]);     /* columns 0 and 2, or 1 and 3 */
        b[i + 2] = _mm256_unpackhi_epi8(a[i], a[i + 2]); /* 4 and 6, or 5 and 7 */
    }
    for (int i = 0; i < 2; i++) {
        c[2 * i] = _mm256_unpacklo_epi8(b[2 * i], b[2 * i + 1]);
        c[2 * i + 1] = _mm256_unpackhi_epi8(b[2 * i], b[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        const __m256i grey = _mm256_set1_epi8(-128);
        __m256i upper = _mm256_xor_si256(_mm256_unpacklo_epi32(c[i], c[i + 2]), grey);
        __m256i lower = _mm256_xor_si256(_mm256_unpackhi_epi32(c[i], c[i + 2]), grey);
        store_rows(_mm256_castsi256_si128(upper), one, 4 * i);
        store_rows(_mm256_castsi256_si128(lower), one, 4 * i + 2);
        store_rows(_mm256_extracti128_si256(upper, 1), other, 4 * i);
        store_rows(_mm256_extracti128_si256(lower, 1), other, 4 * i + 2);
    }
}

/* Whether four times every value of the first rows fits into 16 bits, as in any image that was ever encoded. Where only
 * the first row of a block is not 0, libjpeg-turbo multiplies so, and an overflow of damaged values makes other pixels. */
static int is_in_range(__m256i first_rows) { return _mm256_testz_si256(first_rows, _mm256_set1_epi16((int16_t)0xe000)); }

/* A block of which only the first coefficient is not 0. */
static void fill_block(const struct block *block) {
    int value = (int16_t)((unsigned)block->coefficients[0] * (unsigned)block->quantization[0] * 4);
    value = ((value + 16) >> 5) + 128;
    value = value < 0 ? 0 : value > 255 ? 255 : value;
    for (int i = 0; i < 8; i++) memset(block->out + block->stride * i, value, 8);
}

#endif
