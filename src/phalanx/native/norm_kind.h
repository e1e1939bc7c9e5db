/* The functions of norm.c for one kind of values: KIND names it, VALUE is its type, FROM and TO convert to float. */

/* first[c] += Σ x − around, second[c] += Σ (x − around)² over some rows. */
static void NAMED(sum_rows)(const VALUE *restrict x, int64_t rows, int64_t channels, const float *restrict around,
                            float *restrict first, float *restrict second) {
    int64_t r = 0;
    for (; r + TOGETHER <= rows; r += TOGETHER, x += TOGETHER * channels)
        for (int64_t c = 0; c < channels; c++) {
            float k = around[c], x0 = FROM(x[c]) - k, x1 = FROM(x[channels + c]) - k;
            float x2 = FROM(x[2 * channels + c]) - k, x3 = FROM(x[3 * channels + c]) - k;
            first[c] += (x0 + x1) + (x2 + x3);
            second[c] += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3);
        }
    for (; r < rows; r++, x += channels)
        for (int64_t c = 0; c < channels; c++) {
            float x0 = FROM(x[c]) - around[c];
            first[c] += x0;
            second[c] += x0 * x0;
        }
}

ALWAYS void NAMED(write_row)(int act, const VALUE *restrict x, const VALUE *restrict added, int64_t channels,
                             const float *restrict scale, const float *restrict shift, VALUE *restrict y) {
    for (int64_t c = 0; c < channels; c++) {
        float value = FROM(x[c]) * scale[c] + shift[c];
        y[c] = TO(activated(act, added ? value + FROM(added[c]) : value));
    }
}

ALWAYS void NAMED(write_rows)(int act, const VALUE *x, const VALUE *added, int64_t rows, int64_t channels,
                              const float *scale, const float *shift, VALUE *y, int past) {
    _Alignas(LINE) VALUE row[BUFFER / sizeof(VALUE)];
    for (int64_t r = 0; r < rows; r++, x += channels, y += channels) {
        NAMED(write_row)(act, x, added, channels, scale, shift, past ? row : y);
        if (past) pass_cache(y, row, channels * (int64_t)sizeof(VALUE));
        if (added) added += channels;
    }
    if (past) settle();
}

/* y = act((x − mean) / deviation · weight + bias + added), as far as asked for; `variance` is that of the rows.
   0, or -1 where there is no memory. */
int NAMED(norm_forward)(const VALUE *x, const VALUE *added, const float *weight, const float *bias, float epsilon,
                        int act, int64_t rows, int64_t channels, VALUE *y, float *mean, float *variance,
                        float *inverse, int threads) {
    int64_t parts = parts_of(rows), row = channels * (int64_t)sizeof(VALUE);
    int past = passes_cache(y, rows * row, row);
    float *sums = calloc((size_t)(parts * 2 + 3) * channels, sizeof(float));
    if (!sums) return -1;
    float *around = sums + parts * 2 * channels, *scale = around + channels, *shift = scale + channels;
    for (int64_t c = 0; c < channels; c++) around[c] = FROM(x[c]);
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t part = 0; part < parts; part++) {
            int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
            float *first = sums + part * 2 * channels;
            NAMED(sum_rows)(x + begin * channels, end - begin, channels, around, first, first + channels);
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < channels; c++) {
            double first, second;
            add_up(sums, parts, channels, c, &first, &second);
            double off = first / rows, spread = second / rows - off * off;
            mean[c] = around[c] + off;
            variance[c] = spread > 0 ? spread : spread != spread ? spread : 0;
            inverse[c] = 1 / sqrt((double)variance[c] + epsilon);
            scale[c] = weight[c] * inverse[c];
            shift[c] = bias[c] - mean[c] * scale[c];
        }
#pragma omp for schedule(static)
        for (int64_t part = 0; part < parts; part++) {
            int64_t begin = rows * part / parts, end = rows * (part + 1) / parts, at = begin * channels;
#define WRITE(act)                                                                                                     \
    if (added) NAMED(write_rows)(act, x + at, added + at, end - begin, channels, scale, shift, y + at, past);          \
    else NAMED(write_rows)(act, x + at, NULL, end - begin, channels, scale, shift, y + at, past)
            FOR_ACT(WRITE)
#undef WRITE
        }
    }
    free(sums);
    return 0;
}

/* The gradient that passes the activation, which is computed again. */
#define PASSED passed(act, FROM(grad[c]), FROM(x[c]) * scale[c] + shift[c])

ALWAYS void NAMED(sum_grads)(int act, const VALUE *restrict grad, const VALUE *restrict x, int64_t rows,
                             int64_t channels, const float *restrict mean, const float *restrict scale,
                             const float *restrict shift, float *restrict first, float *restrict second) {
    for (int64_t r = 0; r < rows; r++, grad += channels, x += channels)
        for (int64_t c = 0; c < channels; c++) {
            float g = PASSED;
            first[c] += g;
            second[c] += g * (FROM(x[c]) - mean[c]);
        }
}

/* The same where something was added before a relu, whose output is y: what passes is the gradient of what was added. */
static void NAMED(sum_added_row)(const VALUE *restrict grad, const VALUE *restrict x, const VALUE *restrict y,
                                 int64_t channels, const float *restrict mean, float *restrict first,
                                 float *restrict second, VALUE *restrict of_added) {
    for (int64_t c = 0; c < channels; c++) {
        float g = passed(RELU, FROM(grad[c]), FROM(y[c]));
        of_added[c] = TO(g);
        first[c] += g;
        second[c] += g * (FROM(x[c]) - mean[c]);
    }
}

static void NAMED(sum_added)(const VALUE *grad, const VALUE *x, const VALUE *y, int64_t rows, int64_t channels,
                             const float *mean, float *first, float *second, VALUE *of_added, int past) {
    _Alignas(LINE) VALUE row[BUFFER / sizeof(VALUE)];
    for (int64_t r = 0; r < rows; r++, grad += channels, x += channels, y += channels, of_added += channels) {
        NAMED(sum_added_row)(grad, x, y, channels, mean, first, second, past ? row : of_added);
        if (past) pass_cache(of_added, row, channels * (int64_t)sizeof(VALUE));
    }
    if (past) settle();
}

ALWAYS void NAMED(write_grad_row)(int act, const VALUE *restrict grad, const VALUE *restrict x, int64_t channels,
                                  const float *restrict mean, const float *restrict scale,
                                  const float *restrict shift, const float *restrict by_x,
                                  const float *restrict by_one, VALUE *restrict of_x) {
    for (int64_t c = 0; c < channels; c++)
        of_x[c] = TO(scale[c] * PASSED - (FROM(x[c]) - mean[c]) * by_x[c] - by_one[c]);
}

ALWAYS void NAMED(write_grads)(int act, const VALUE *grad, const VALUE *x, int64_t rows, int64_t channels,
                               const float *mean, const float *scale, const float *shift, const float *by_x,
                               const float *by_one, VALUE *of_x, int past) {
    _Alignas(LINE) VALUE row[BUFFER / sizeof(VALUE)];
    for (int64_t r = 0; r < rows; r++, grad += channels, x += channels, of_x += channels) {
        NAMED(write_grad_row)(act, grad, x, channels, mean, scale, shift, by_x, by_one, past ? row : of_x);
        if (past) pass_cache(of_x, row, channels * (int64_t)sizeof(VALUE));
    }
    if (past) settle();
}

/* Gradients of all that went in. `y` is the output, where something was added before a relu; its gradient is then
   wanted too. */
int NAMED(norm_backward)(const VALUE *grad, const VALUE *x, const VALUE *y, const float *weight, const float *bias,
                         const float *mean, const float *inverse, int act, int64_t rows, int64_t channels,
                         VALUE *of_x, VALUE *of_added, float *of_weight, float *of_bias, int threads) {
    int64_t parts = parts_of(rows), row = channels * (int64_t)sizeof(VALUE);
    int past = passes_cache(of_x, rows * row, row), added_past = y && passes_cache(of_added, rows * row, row);
    float *sums = calloc((size_t)(parts * 2 + 4) * channels, sizeof(float));
    if (!sums) return -1;
    float *scale = sums + parts * 2 * channels, *shift = scale + channels, *by_x = shift + channels;
    float *by_one = by_x + channels;
    for (int64_t c = 0; c < channels; c++) {
        scale[c] = weight[c] * inverse[c];
        shift[c] = bias[c] - mean[c] * scale[c];
    }
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (int64_t part = 0; part < parts; part++) {
            int64_t begin = rows * part / parts, end = rows * (part + 1) / parts, at = begin * channels;
            float *first = sums + part * 2 * channels, *second = first + channels;
#define SUM(act)                                                                                                       \
    NAMED(sum_grads)(act, grad + at, x + at, end - begin, channels, mean, scale, shift, first, second)
            if (y)
                NAMED(sum_added)
                (grad + at, x + at, y + at, end - begin, channels, mean, first, second, of_added + at, added_past);
            else FOR_ACT(SUM)
#undef SUM
        }
#pragma omp for schedule(static)
        for (int64_t c = 0; c < channels; c++) {
            double first, second;
            add_up(sums, parts, channels, c, &first, &second);
            of_bias[c] = first;
            of_weight[c] = second * inverse[c];
            by_one[c] = scale[c] * first / rows;
            by_x[c] = scale[c] * inverse[c] * inverse[c] * second / rows;
        }
#pragma omp for schedule(static)
        for (int64_t part = 0; part < parts; part++) {
            int64_t begin = rows * part / parts, end = rows * (part + 1) / parts, at = begin * channels;
#define WRITE(act)                                                                                                     \
    NAMED(write_grads)                                                                                                 \
    (act, (y ? of_added : grad) + at, x + at, end - begin, channels, mean, scale, shift, by_x, by_one, of_x + at, past)
            if (y) WRITE(NONE);
            else FOR_ACT(WRITE)
#undef WRITE
        }
    }
    free(sums);
    return 0;
}

#undef PASSED
#undef KIND
#undef VALUE
#undef FROM
#undef TO
