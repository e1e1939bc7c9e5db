/* 3×3 convolutions of stride 1 and their gradients by Winograd's F(4×4, 3×3): a quarter of the multiplications.

   An image is cut into tiles of 6×6 pixels that overlap by 2. Transformed, each of a tile's 36 values is multiplied only
   with values of the same place, so a convolution becomes 36 matrix products over channels:

       output  = Aᵀ [ (G weight Gᵀ) · (Bᵀ tile B) ] A            4×4 pixels a tile
       weight' = Gᵀ [ (A output' Aᵀ) · (Bᵀ tile B) ] G           summed over tiles

   (Lavin & Gray 2015, arXiv:1509.09308; points 0, ±1, ±2, ∞.) The gradient of the input is a convolution again, with the
   weight turned around. Pixels are float32 and channels_last; numbers of channels are multiples of 8. A thread carries a
   few tiles through all three stages while they are in its cache. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
int omp_get_thread_num(void); /* not from omp.h, which clang does not bring */
static int this_thread(void) { return omp_get_thread_num(); }
#else
static int this_thread(void) { return 0; }
#endif

enum { TILE = 6, OUT = 4, PLACES = TILE * TILE, LANES = 8, ROWS = 6 };
enum { DEPTH = 128 };         /* tiles that a product sums up before others are read into the innermost cache */
enum { BLOCK = 48 };          /* tiles that a thread carries through at a time */
enum { TOGETHER = 2 << 20 };  /* floats of transformed tiles that all threads sum up at a time: they stay in the cache */
#if defined(__AVX512F__)
enum { WIDE = 16 };
#else
enum { WIDE = 8 };
#endif
enum { PANEL = 2 * WIDE };  /* columns that a product makes at a time; rows of matrices are padded to them */

typedef float lanes __attribute__((vector_size(LANES * 4)));
typedef float loose __attribute__((vector_size(LANES * 4), aligned(4)));
typedef float wide __attribute__((vector_size(WIDE * 4), aligned(4)));

static inline lanes get(const float *from) { return *(const loose *)from; }
static inline void put(float *to, lanes value) { *(loose *)to = value; }
static inline int64_t up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
/* From one place's matrix to the next: not a power of two, or all 36 would share a few lines of the cache. */
static inline int64_t apart(int64_t rows, int64_t stride) { return up(rows * stride, 1024) + 48; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

typedef struct {
    int64_t images, height, width, channels;  /* of what is cut into tiles */
    int64_t pad, down, across;                /* tiles in a column and in a row of an image */
} Plane;

static Plane plane(int64_t images, int64_t height, int64_t width, int64_t channels, int64_t pad, int64_t out_height,
                   int64_t out_width) {
    return (Plane){images, height, width, channels, pad, (out_height + OUT - 1) / OUT, (out_width + OUT - 1) / OUT};
}

static int64_t tiles_of(const Plane *p) { return p->images * p->down * p->across; }

/* Where a tile's `size`² pixels begin, in units of OUT pixels. */
static inline void corner(const Plane *p, int64_t tile, int64_t *image, int64_t *row, int64_t *column) {
    *image = tile / (p->down * p->across);
    *row = tile / p->across % p->down * OUT - p->pad;
    *column = tile % p->across * OUT - p->pad;
}

/* Where the first channel of each of a tile's size × size pixels is; beyond the image there are zeros. */
static inline void find_pixels(const float *from, const Plane *p, int64_t row, int64_t column, int size,
                               const float *zeros, const float **at) {
    for (int y = 0; y < size; y++, row++) {
        const float *line = from + (row * p->width + column) * p->channels;
        int inside = row >= 0 && row < p->height;
        for (int x = 0; x < size; x++, line += p->channels)
            at[y * size + x] = inside && column + x >= 0 && column + x < p->width ? line : zeros;
    }
}

static inline __attribute__((always_inline)) void input_line(const lanes *d, lanes *to, int by) {
    lanes d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3], d4 = d[4], d5 = d[5];
    lanes even = d4 - 4 * d2, odd = d3 - 4 * d1, near = d4 - d2, far = 2 * (d3 - d1);
    to[0] = 4 * d0 - 5 * d2 + d4;
    to[by] = even + odd;
    to[2 * by] = even - odd;
    to[3 * by] = near + far;
    to[4 * by] = near - far;
    to[5 * by] = 4 * d1 - 5 * d3 + d5;
}

static inline __attribute__((always_inline)) void output_line(const lanes *m, int step, lanes *to, int by) {
    lanes sum1 = m[step] + m[2 * step], difference1 = m[step] - m[2 * step];
    lanes sum2 = m[3 * step] + m[4 * step], difference2 = m[3 * step] - m[4 * step];
    to[0] = m[0] + sum1 + sum2;
    to[by] = difference1 + 2 * difference2;
    to[2 * by] = sum1 + 4 * sum2;
    to[3 * by] = difference1 + 8 * difference2 + m[5 * step];
}

/* The transpose of output_line: 4 values become 6. */
static inline __attribute__((always_inline)) void spread_line(const lanes *y, lanes *to, int by) {
    lanes y0 = y[0], y1 = y[1], y2 = y[2], y3 = y[3];
    lanes sum = y0 + y2, difference = y1 + y3, sum4 = y0 + 4 * y2, difference4 = 2 * y1 + 8 * y3;
    to[0] = y0;
    to[by] = sum + difference;
    to[2 * by] = sum - difference;
    to[3 * by] = sum4 + difference4;
    to[4 * by] = sum4 - difference4;
    to[5 * by] = y3;
}

/* Tiles first … first+count of x, transformed. Places are `between` floats apart, a tile's channels [part][some of
   them], parts `apart` floats and tiles `stride`. */
static void transform_tiles(const float *x, const Plane *p, int64_t first, int64_t count, const float *zeros, float *to,
                            int64_t between, int64_t stride, int64_t some, int64_t apart) {
    for (int64_t t = 0; t < count; t++, to += stride) {
        int64_t image, row, column;
        const float *at[PLACES];
        corner(p, first + t, &image, &row, &column);
        find_pixels(x + image * p->height * p->width * p->channels, p, row, column, TILE, zeros, at);
        for (int64_t c = 0; c < p->channels; c += LANES) {
            lanes half[PLACES], done[TILE];
            if (c % 16 == 0)  /* a new line of the cache: fetch what the next tile has and this one has not */
                for (int i = 0; i < TILE; i++)
                    for (int j = 2; j < TILE; j++) __builtin_prefetch(at[i * TILE + j] + OUT * p->channels + c);
            /* Not divided by `some`: that would take as long as a quarter of the transform. */
            float *target = to + (some == PANEL ? c / PANEL * apart + c % PANEL : c);
            for (int i = 0; i < TILE; i++) {
                lanes line[TILE];
                for (int j = 0; j < TILE; j++) line[j] = get(at[i * TILE + j] + c);
                input_line(line, half + i, TILE);
            }
            for (int i = 0; i < TILE; i++) {
                input_line(half + i * TILE, done, 1);
                for (int j = 0; j < TILE; j++) put(target + (j * TILE + i) * between, done[j]);
            }
        }
        for (int64_t c = p->channels; c < up(p->channels, some); c += LANES)
            for (int place = 0; place < PLACES; place++)
                put(to + place * between + c / some * apart + c % some, (lanes){0});
    }
}

/* The same of a gradient of the output, whose tiles are 4×4 and do not overlap: A tile Aᵀ. */
static void spread_tiles(const float *y, const Plane *p, int64_t first, int64_t count, const float *zeros, float *to,
                         int64_t between, int64_t stride) {
    for (int64_t t = 0; t < count; t++, to += stride) {
        int64_t image, row, column;
        const float *at[OUT * OUT];
        corner(p, first + t, &image, &row, &column);
        find_pixels(y + image * p->height * p->width * p->channels, p, row, column, OUT, zeros, at);
        for (int64_t c = 0; c < p->channels; c += LANES) {
            lanes half[TILE * OUT], done[TILE];
            for (int i = 0; i < OUT; i++) {
                lanes line[OUT];
                for (int j = 0; j < OUT; j++) line[j] = get(at[i * OUT + j] + c);
                spread_line(line, half + i, OUT);
            }
            for (int i = 0; i < TILE; i++) {
                spread_line(half + i * OUT, done, 1);
                for (int j = 0; j < TILE; j++) put(to + (j * TILE + i) * between + c, done[j]);
            }
        }
    }
}

/* from[place][tile - first][channel] becomes the 4×4 pixels of each tile of y. */
static void untransform_tiles(const float *from, int64_t between, int64_t stride, const Plane *p, int64_t first,
                              int64_t count, float *y, int64_t height, int64_t width, int64_t channels) {
    for (int64_t t = 0; t < count; t++) {
        int64_t image, row, column;
        corner(p, first + t, &image, &row, &column);
        row += p->pad, column += p->pad;
        int64_t down = least(OUT, height - row), across = least(OUT, width - column);
        float *to = y + ((image * height + row) * width + column) * channels;
        for (int64_t c = 0; c < channels; c += LANES) {
            lanes values[PLACES], half[OUT * TILE], done[OUT * OUT];
            for (int place = 0; place < PLACES; place++) values[place] = get(from + place * between + t * stride + c);
            for (int i = 0; i < TILE; i++) output_line(values + i, TILE, half + i, TILE);
            for (int i = 0; i < OUT; i++) output_line(half + i * TILE, 1, done + i * OUT, 1);
            for (int i = 0; i < down; i++)
                for (int j = 0; j < across; j++) put(to + (i * width + j) * channels + c, done[i * OUT + j]);
        }
    }
}

static inline __attribute__((always_inline)) void weight_line(lanes a, lanes b, lanes c, lanes *to) {
    lanes even = (a + c) * (1.0f / 6), odd = b * (1.0f / 6), low = a * (1.0f / 24) + c * (1.0f / 6), high = b * (1.0f / 12);
    to[0] = a * 0.25f;
    to[1] = -even - odd;
    to[2] = odd - even;
    to[3] = low + high;
    to[4] = low - high;
    to[5] = c;
}

/* G weight Gᵀ, laid out for products: to[place][panel][k][PANEL] for a weight of `inner` × `outer` values of 3×3. */
static void transform_weight(const float *weight, const int64_t stride[4], int turned, int64_t inner, int64_t outer,
                             float *to, int threads) {
    int64_t panels = up(outer, PANEL) / PANEL, between = apart(inner, panels * PANEL);
#pragma omp parallel for collapse(2) num_threads(threads) schedule(static)
    for (int64_t panel = 0; panel < panels; panel++)
        for (int64_t first = 0; first < inner; first += LANES) {
            float some[LANES][9][PANEL];  /* laid out anew at once: each line of the cache is read once */
            for (int o = 0; o < PANEL; o++)
                for (int i = 0; i < 9; i++) {
                    int place = turned ? 8 - i : i;
                    const float *from = weight + first * stride[0] + (panel * PANEL + o) * stride[1] +
                                        place / 3 * stride[2] + place % 3 * stride[3];
                    for (int k = 0; k < LANES; k++) some[k][i][o] = panel * PANEL + o < outer ? from[k * stride[0]] : 0;
                }
            for (int k = 0; k < LANES; k++)
                for (int o = 0; o < PANEL; o += LANES) {
                    lanes half[3][TILE], done[TILE];
                    float *target = to + (panel * inner + first + k) * PANEL + o;
                    for (int i = 0; i < 3; i++)
                        weight_line(get(some[k][3 * i] + o), get(some[k][3 * i + 1] + o), get(some[k][3 * i + 2] + o), half[i]);
                    for (int i = 0; i < TILE; i++) {
                        weight_line(half[0][i], half[1][i], half[2][i], done);
                        for (int j = 0; j < TILE; j++) put(target + (j * TILE + i) * between, done[j]);
                    }
                }
        }
}

/* c[rows × PANEL] (+)= a · b: element (r, k) of a at a[r * down + k * along], row k of b at b + k * b_stride. */
#define PRODUCT(rows)                                                                                                 \
    static void product_##rows(int64_t depth, const float *a, int64_t down, int64_t along, const float *b,            \
                               int64_t b_stride, float *c, int64_t c_stride, int add) {                              \
        wide sum[rows][2];                                                                                            \
        for (int r = 0; r < rows; r++)                                                                                \
            for (int h = 0; h < 2; h++) sum[r][h] = add ? *(wide *)(c + r * c_stride + h * WIDE) : (wide){0};         \
        for (int64_t k = 0; k < depth; k++) {                                                                         \
            wide left = *(const wide *)(b + k * b_stride), right = *(const wide *)(b + k * b_stride + WIDE);          \
            for (int r = 0; r < rows; r++) {                                                                          \
                float by = a[r * down + k * along];                                                                   \
                sum[r][0] += by * left;                                                                               \
                sum[r][1] += by * right;                                                                              \
            }                                                                                                         \
        }                                                                                                             \
        for (int r = 0; r < rows; r++)                                                                                \
            for (int h = 0; h < 2; h++) *(wide *)(c + r * c_stride + h * WIDE) = sum[r][h];                           \
    }
PRODUCT(6)
PRODUCT(2)

static float *reserve(int64_t floats) {
    void *memory = NULL;
    return posix_memalign(&memory, 64, (size_t)floats * sizeof(float)) ? NULL : memory;
}

/* y = x convolved with a weight of [inner = x's channels] × [outer = y's], whose strides are given in that order.
   0, or -1 where there is no memory. */
int winograd_convolve(const float *x, const float *weight, const int64_t *weight_stride, int turned, float *y,
                      int64_t images, int64_t height, int64_t width, int64_t inner, int64_t outer, int64_t pad,
                      int threads) {
    int64_t out_height = height + 2 * pad - 2, out_width = width + 2 * pad - 2;
    Plane p = plane(images, height, width, inner, pad, out_height, out_width);
    int64_t tiles = tiles_of(&p), wide_outer = up(outer, PANEL), panels = wide_outer / PANEL;
    int64_t block = up(least(BLOCK, (tiles + threads - 1) / threads), ROWS);
    int64_t u_apart = apart(inner, wide_outer), v_apart = apart(block, inner), m_apart = apart(block, wide_outer);
    int64_t each = PLACES * (v_apart + m_apart) + up(inner, 16);
    float *u = reserve(PLACES * u_apart), *scratch = reserve(threads * each);
    int failed = !u || !scratch;
    if (!failed) {
        transform_weight(weight, weight_stride, turned, inner, outer, u, threads);
#pragma omp parallel num_threads(threads)
        {
            float *v = scratch + this_thread() * each, *m = v + PLACES * v_apart, *zeros = m + PLACES * m_apart;
            memset(zeros, 0, (size_t)inner * sizeof(float));
#pragma omp for schedule(dynamic)
            for (int64_t first = 0; first < tiles; first += block) {
                int64_t count = least(block, tiles - first);
                transform_tiles(x, &p, first, count, zeros, v, v_apart, inner, inner, 0);
                for (int place = 0; place < PLACES; place++)
                    for (int64_t panel = 0; panel < panels; panel++)
                        for (int64_t t = 0; t < count; t += ROWS)
                            product_6(inner, v + place * v_apart + t * inner, inner, 1,
                                      u + place * u_apart + panel * inner * PANEL, PANEL,
                                      m + place * m_apart + t * wide_outer + panel * PANEL, wide_outer, 0);
                untransform_tiles(m, m_apart, wide_outer, &p, first, count, y, out_height, out_width, outer);
            }
        }
    }
    free(u), free(scratch);
    return failed ? -1 : 0;
}

/* Gᵀ sum G of each pair of channels: sums[place][outer][inner] becomes to[outer][3][3][inner]. */
static void untransform_weight(const float *sums, int64_t between, int64_t outer, int64_t inner, int64_t stride,
                               float *to, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t o = 0; o < outer; o++)
        for (int64_t c = 0; c < inner; c += LANES) {
            lanes s[PLACES], half[3 * TILE];
            for (int place = 0; place < PLACES; place++) s[place] = get(sums + place * between + o * stride + c);
            for (int i = 0; i < TILE; i++) {
                lanes even = s[TILE + i] + s[2 * TILE + i], odd = s[2 * TILE + i] - s[TILE + i];
                lanes low = s[3 * TILE + i] + s[4 * TILE + i], high = s[3 * TILE + i] - s[4 * TILE + i];
                half[i] = s[i] * 0.25f - even * (1.0f / 6) + low * (1.0f / 24);
                half[TILE + i] = odd * (1.0f / 6) + high * (1.0f / 12);
                half[2 * TILE + i] = (low - even) * (1.0f / 6) + s[5 * TILE + i];
            }
            for (int i = 0; i < 3; i++) {
                const lanes *h = half + i * TILE;
                lanes even = h[1] + h[2], odd = h[2] - h[1], low = h[3] + h[4], high = h[3] - h[4];
                float *line = to + (o * 9 + i * 3) * inner + c;
                put(line, h[0] * 0.25f - even * (1.0f / 6) + low * (1.0f / 24));
                put(line + inner, odd * (1.0f / 6) + high * (1.0f / 12));
                put(line + 2 * inner, (low - even) * (1.0f / 6) + h[5]);
            }
        }
}

/* The gradient of a weight, [outer][3][3][inner], from x and the gradient of y. */
int winograd_weight(const float *x, const float *gradient, float *to, int64_t images, int64_t height, int64_t width,
                    int64_t inner, int64_t outer, int64_t pad, int threads) {
    int64_t out_height = height + 2 * pad - 2, out_width = width + 2 * pad - 2;
    Plane p = plane(images, height, width, inner, pad, out_height, out_width);
    Plane q = plane(images, out_height, out_width, outer, 0, out_height, out_width);
    int64_t tiles = tiles_of(&p), wide_inner = up(inner, PANEL);
    int64_t rows = least(tiles, up(TOGETHER / (PLACES * (wide_inner + outer)), BLOCK));
    int64_t v_apart = apart(rows, wide_inner), m_apart = apart(rows, outer), sums_apart = apart(outer, wide_inner);
    float *v = reserve(PLACES * v_apart), *m = reserve(PLACES * m_apart), *sums = reserve(PLACES * sums_apart);
    float *zeros = calloc((size_t)(inner > outer ? inner : outer), sizeof(float));
    int failed = !v || !m || !sums || !zeros;
    if (!failed) {
#pragma omp parallel num_threads(threads)
        for (int64_t first = 0; first < tiles; first += rows) {
            int64_t count = least(rows, tiles - first), part = 8;
#pragma omp for schedule(static)
            for (int64_t t = 0; t < count; t += part) {
                int64_t some = least(part, count - t);
                transform_tiles(x, &p, first + t, some, zeros, v + t * PANEL, v_apart, PANEL, PANEL, rows * PANEL);
                spread_tiles(gradient, &q, first + t, some, zeros, m + t * outer, m_apart, outer);
            }
#pragma omp for schedule(static)
            for (int place = 0; place < PLACES; place++)
                for (int64_t begin = 0; begin < count; begin += DEPTH)
                    for (int64_t c = 0; c < inner; c += PANEL) {
                        int64_t depth = least(DEPTH, count - begin), o = 0;
                        const float *a = m + place * m_apart + begin * outer;
                        const float *b = v + place * v_apart + c * rows + begin * PANEL;
                        float *sum = sums + place * sums_apart + c;
                        int add = first + begin > 0;
                        for (; o + 6 <= outer; o += 6)
                            product_6(depth, a + o, 1, outer, b, PANEL, sum + o * wide_inner, wide_inner, add);
                        for (; o < outer; o += 2)
                            product_2(depth, a + o, 1, outer, b, PANEL, sum + o * wide_inner, wide_inner, add);
                    }
        }
        untransform_weight(sums, sums_apart, outer, inner, wide_inner, to, threads);
    }
    free(v), free(m), free(sums), free(zeros);
    return failed ? -1 : 0;
}
