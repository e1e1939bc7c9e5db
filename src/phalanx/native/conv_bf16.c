/* Weight gradients of convolutions in bf16: matrix products of bf16 values with float32 sums.

       weight'[out][tap][in] = Σ over images and output pixels of  gradient[pixel][out] · x[pixel at the tap][in]

   AVX512-BF16 multiplies pairs of values and adds both products to a float32; other CPUs do so in several steps. The
   pairs here are the same pixel of two images: so the values are laid out once, and a tap, a stride and an edge only
   change which pairs are read. Pixels are channels_last. Each sum is made by one thread, pixel after pixel: the number
   of threads does not change a result. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

enum { ROWS = 8, PANEL = 32 };   /* output and input channels of a product */
enum { LEFT = 16 };              /* output channels that are laid out side by side: a line of the cache */
enum { TOGETHER = 1 << 19 };     /* pairs that are laid out at a time: 2 MB stay in the cache */

typedef struct {
    int64_t images, height, width, inner, outer, out_height, out_width;
    int64_t kernel_height, kernel_width, stride, pad;
    int64_t every; /* of a 1×1 convolution with a stride, only every so many pixels are laid out; then stride is 1 */
} Convolution;

/* Some output rows of some pairs of images. */
typedef struct {
    int64_t first, pairs, row, rows;
    int64_t x_rows, x_width;      /* of what is laid out of a pair */
    int64_t x_apart, grad_apart;  /* from one panel of channels to the next */
} Chunk;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/* to[i] = the pair of one[i] and other[i]. */
static inline __attribute__((always_inline)) void join(const uint16_t *restrict one, const uint16_t *restrict other,
                                                       uint32_t *restrict to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = one[i] | (uint32_t)other[i] << 16;
}

/* The same for 32 values; the second half goes to `second`. */
static inline __attribute__((always_inline)) void join_32(const uint16_t *one, const uint16_t *other, uint32_t *first,
                                                          uint32_t *second) {
#if defined(__AVX512BW__)
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    __m512i a = _mm512_loadu_si512(one), b = _mm512_loadu_si512(other);
    _mm512_storeu_si512(first, _mm512_permutex2var_epi16(a, low, b));
    _mm512_storeu_si512(second, _mm512_permutex2var_epi16(a, high, b));
#else
    join(one, other, first, 16), join(one + 16, other + 16, second, 16);
#endif
}

/* A pixel's channels in two images, to panels of 16 or 32 channels each, the last filled up with zeros. */
static inline __attribute__((always_inline)) void join_pixel(const uint16_t *one, const uint16_t *other,
                                                             int64_t channels, uint32_t *to, int64_t apart,
                                                             const int64_t panel) {
    const int64_t second = panel == 32 ? 16 : apart, further = panel == 32 ? apart : 2 * apart;
    int64_t c = 0;
    for (; c + 32 <= channels; c += 32, to += further) join_32(one + c, other + c, to, to + second);
    for (; c < channels; c += panel, to += apart) {
        int64_t some = least(panel, channels - c);
        memset(to, 0, (size_t)panel * sizeof(uint32_t));
        join(one + c, other + c, to, some);
    }
}

/* Lays out one row of x: row `number` of those that the chunk needs, with zeros beyond the edges. */
static void join_x(const Convolution *v, const Chunk *k, const uint16_t *x, const uint16_t *zeros, int64_t number,
                   uint32_t *to) {
    int64_t image = 2 * (k->first + number / k->x_rows), panels = up(v->inner, PANEL) / PANEL;
    int64_t y = (k->row * v->stride + number % k->x_rows) * v->every - v->pad;
    int64_t line = v->width * v->inner, size = v->height * line;
    int inside = y >= 0 && y < v->height;
    const uint16_t *one = x + image * size + y * line, *other = one + size;
    to += number * k->x_width * PANEL;
    for (int64_t i = 0; i < k->x_width; i++, to += PANEL) {
        int64_t across = i * v->every - v->pad;
        if (inside && across >= 0 && across < v->width)
            join_pixel(one + across * v->inner, image + 1 < v->images ? other + across * v->inner : zeros, v->inner, to,
                       k->x_apart, PANEL);
        else
            for (int64_t p = 0; p < panels; p++) memset(to + p * k->x_apart, 0, PANEL * sizeof(uint32_t));
    }
}

static void join_gradient(const Convolution *v, const Chunk *k, const uint16_t *grad, const uint16_t *zeros,
                          int64_t number, uint32_t *to) {
    int64_t image = 2 * (k->first + number / k->rows), y = k->row + number % k->rows;
    int64_t line = v->out_width * v->outer, size = v->out_height * line;
    const uint16_t *one = grad + image * size + y * line, *other = one + size;
    to += number * v->out_width * LEFT;
    for (int64_t i = 0; i < v->out_width; i++, to += LEFT)
        join_pixel(one + i * v->outer, image + 1 < v->images ? other + i * v->outer : zeros, v->outer, to,
                   k->grad_apart, LEFT);
}

/* sums[ROWS][PANEL] (+)= Σ grad · x over the chunk's pixels, of one tap. */
static void product(const Convolution *v, const Chunk *k, const uint32_t *grad, const uint32_t *x, float *sums,
                    int add) {
    int64_t step = v->stride * PANEL;
#if defined(__AVX512BF16__)
    __m512 sum[ROWS][2];
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 2; h++)
            sum[r][h] = add ? _mm512_loadu_ps(sums + r * PANEL + 16 * h) : _mm512_setzero_ps();
#else
    float sum[ROWS][PANEL];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < PANEL; c++) sum[r][c] = add ? sums[r * PANEL + c] : 0;
#endif
    for (int64_t pair = 0; pair < k->pairs; pair++)
        for (int64_t row = 0; row < k->rows; row++) {
            const uint32_t *at = x + (pair * k->x_rows + row * v->stride) * k->x_width * PANEL;
            for (int64_t i = 0; i < v->out_width; i++, at += step, grad += LEFT) {
#if defined(__AVX512BF16__)
                __m512bh left = (__m512bh)_mm512_loadu_si512(at), right = (__m512bh)_mm512_loadu_si512(at + 16);
                for (int r = 0; r < ROWS; r++) {
                    __m512bh by = (__m512bh)_mm512_set1_epi32((int)grad[r]);
                    sum[r][0] = _mm512_dpbf16_ps(sum[r][0], by, left);
                    sum[r][1] = _mm512_dpbf16_ps(sum[r][1], by, right);
                }
#else
                float low[PANEL], high[PANEL];
                for (int c = 0; c < PANEL; c++) {
                    uint32_t one = at[c] << 16, other = at[c] & 0xffff0000u;
                    memcpy(low + c, &one, 4), memcpy(high + c, &other, 4);
                }
                for (int r = 0; r < ROWS; r++) {
                    uint32_t one = grad[r] << 16, other = grad[r] & 0xffff0000u;
                    float by_low, by_high;
                    memcpy(&by_low, &one, 4), memcpy(&by_high, &other, 4);
                    for (int c = 0; c < PANEL; c++) sum[r][c] += by_low * low[c] + by_high * high[c];
                }
#endif
            }
        }
#if defined(__AVX512BF16__)
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 2; h++) _mm512_storeu_ps(sums + r * PANEL + 16 * h, sum[r][h]);
#else
    memcpy(sums, sum, sizeof sum);
#endif
}

/* The rows of the largest chunk, and its pairs of images: several whole ones, or a part of one. */
static Chunk largest_chunk(const Convolution *v) {
    int64_t channels = up(v->inner, PANEL) * v->stride * v->stride + up(v->outer, LEFT);
    int64_t rows = TOGETHER / (channels * v->out_width), pairs = (v->images + 1) / 2;
    Chunk k = {0};
    k.pairs = rows < v->out_height ? 1 : least(pairs, rows / v->out_height);
    k.rows = rows < 1 ? 1 : least(rows, v->out_height);
    int64_t parts = (v->out_height + k.rows - 1) / k.rows;
    k.rows = (v->out_height + parts - 1) / parts;
    k.x_rows = (k.rows - 1) * v->stride + v->kernel_height;
    k.x_width = (v->out_width - 1) * v->stride + v->kernel_width;
    /* Not a multiple of the page: else the panels would share a few lines of the innermost cache. */
    k.x_apart = up(k.pairs * k.x_rows * k.x_width * PANEL, 1024) + 64;
    k.grad_apart = up(k.pairs * k.rows * v->out_width * LEFT, 1024) + 16;
    return k;
}

/* All that a thread does: of each chunk its share of the layout, then its share of the products. */
static void add_up(const Convolution *v, const uint16_t *x, const uint16_t *grad, const uint16_t *zeros, uint32_t *x_to,
                   uint32_t *grad_to, float *sums) {
    Chunk k = largest_chunk(v);
    const int64_t pairs = (v->images + 1) / 2, some_pairs = k.pairs, some_rows = k.rows;
    const int64_t x_panels = up(v->inner, PANEL) / PANEL, panels = up(v->outer, ROWS) / ROWS;
    const int64_t taps = v->kernel_height * v->kernel_width;
    for (k.first = 0; k.first < pairs; k.first += some_pairs)
        for (k.row = 0; k.row < v->out_height; k.row += some_rows) {
            k.pairs = least(some_pairs, pairs - k.first);
            k.rows = least(some_rows, v->out_height - k.row);
            k.x_rows = (k.rows - 1) * v->stride + v->kernel_height;
            int add = k.first + k.row > 0;
#pragma omp for schedule(static) nowait
            for (int64_t i = 0; i < k.pairs * k.x_rows; i++) join_x(v, &k, x, zeros, i, x_to);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < k.pairs * k.rows; i++) join_gradient(v, &k, grad, zeros, i, grad_to);
#pragma omp for schedule(static) collapse(2)
            for (int64_t c = 0; c < x_panels; c++)
                for (int64_t o = 0; o < panels; o++)
                    for (int64_t tap = 0; tap < taps; tap++) {
                        int64_t shift = tap / v->kernel_width * k.x_width + tap % v->kernel_width;
                        const uint32_t *left = grad_to + o * ROWS / LEFT * k.grad_apart + o * ROWS % LEFT;
                        product(v, &k, left, x_to + c * k.x_apart + shift * PANEL,
                                sums + ((o * x_panels + c) * taps + tap) * ROWS * PANEL, add);
                    }
        }
}

/* sums[panel of out][panel of in][tap][ROWS][PANEL] become to[out][tap][in]. */
static void order(const Convolution *v, const float *sums, float *to) {
    const int64_t x_panels = up(v->inner, PANEL) / PANEL, taps = v->kernel_height * v->kernel_width;
#pragma omp for schedule(static)
    for (int64_t o = 0; o < v->outer; o++)
        for (int64_t tap = 0; tap < taps; tap++)
            for (int64_t c = 0; c < v->inner; c += PANEL)
                memcpy(to + (o * taps + tap) * v->inner + c,
                       sums + (((o / ROWS * x_panels + c / PANEL) * taps + tap) * ROWS + o % ROWS) * PANEL,
                       (size_t)least(PANEL, v->inner - c) * sizeof(float));
}

/* The gradient of a weight, [outer][kernel height][kernel width][inner], from x and the gradient of the output.
   0, or -1 where there is no memory. */
int bf16_weight(const uint16_t *x, const uint16_t *grad, float *to, int64_t images, int64_t height, int64_t width,
                int64_t inner, int64_t outer, int64_t kernel_height, int64_t kernel_width, int64_t stride, int64_t pad,
                int threads) {
    Convolution v = {images, height, width, inner, outer, 0, 0, kernel_height, kernel_width, stride, pad, 1};
    v.out_height = (height + 2 * pad - kernel_height) / stride + 1;
    v.out_width = (width + 2 * pad - kernel_width) / stride + 1;
    if (kernel_height == 1 && kernel_width == 1) v.every = stride, v.stride = 1;
    Chunk k = largest_chunk(&v);
    int64_t x_panels = up(inner, PANEL) / PANEL, panels = up(outer, ROWS) / ROWS;
    int64_t all = x_panels * panels * kernel_height * kernel_width * ROWS * PANEL;
    uint16_t *zeros = calloc((size_t)(inner > outer ? inner : outer), sizeof(uint16_t));
    void *memory[3] = {NULL, NULL, NULL};
    int failed = !zeros || posix_memalign(memory, 64, (size_t)(x_panels * k.x_apart) * sizeof(uint32_t)) ||
                 posix_memalign(memory + 1, 64, (size_t)(up(outer, LEFT) / LEFT * k.grad_apart) * sizeof(uint32_t)) ||
                 posix_memalign(memory + 2, 64, (size_t)all * sizeof(float));
    if (!failed) {
#pragma omp parallel num_threads(threads)
        {
            add_up(&v, x, grad, zeros, memory[0], memory[1], memory[2]);
            order(&v, memory[2], to);
        }
    }
    free(zeros), free(memory[0]), free(memory[1]), free(memory[2]);
    return failed ? -1 : 0;
}
