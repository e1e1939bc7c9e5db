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

ALWAYS void NAMED(write_rows)(int act, const VALUE *restrict x, const VALUE *restrict added, int64_t rows,
                              int64_t channels, const float *restrict scale, const float *restrict shift,
                              VALUE *restrict y) {
    for (int64_t r = 0; r < rows; r++, x += channels, y += channels) {
        for (int64_t c = 0; c < channels; c++) {
            float value = FROM(x[c]) * scale[c] + shift[c];
            y[c] = TO(activated(act, added ? value + FROM(added[c]) : value));
        }
        if (added) added += channels;
    }
}

/* y = act((x − mean) / deviation · weight + bias + added), as far as asked for; `variance` is that of the rows.
   0, or -1 where there is no memory. */
int NAMED(norm_forward)(const VALUE *x, const VALUE *added, const float *weight, const float *bias, float epsilon,
                        int act, int64_t rows, int64_t channels, VALUE *y, float *mean, float *variance,
                        float *inverse, int threads) {
    int64_t parts = parts_of(rows);
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
    if (added) NAMED(write_rows)(act, x + at, added + at, end - begin, channels, scale, shift, y + at);                \
    else NAMED(write_rows)(act, x + at, NULL, end - begin, channels, scale, shift, y + at)
            FOR_ACT(WRITE)
#undef WRITE
        }
    }
    free(sums);
    return 0;
}

/* The gradient that passes the activation: computed again, or, of a relu that something was added before, read. */
#define PASSED passed(act, FROM(grad[c]), y ? FROM(y[c]) : FROM(x[c]) * scale[c] + shift[c])

ALWAYS void NAMED(sum_grads)(int act, const VALUE *restrict grad, const VALUE *restrict x, const VALUE *restrict y,
                             int64_t rows, int64_t channels, const float *restrict mean, const float *restrict scale,
                             const float *restrict shift, float *restrict first, float *restrict second) {
    for (int64_t r = 0; r < rows; r++, grad += channels, x += channels, y = y ? y + channels : y)
        for (int64_t c = 0; c < channels; c++) {
            float g = PASSED;
            first[c] += g;
            second[c] += g * (FROM(x[c]) - mean[c]);
        }
}

ALWAYS void NAMED(write_grads)(int act, const VALUE *restrict grad, const VALUE *restrict x, const VALUE *restrict y,
                               int64_t rows, int64_t channels, const float *restrict mean, const float *restrict scale,
                               const float *restrict shift, const float *restrict by_x, const float *restrict by_one,
                               VALUE *restrict of_x, VALUE *restrict of_added) {
    for (int64_t r = 0; r < rows; r++, grad += channels, x += channels, of_x += channels) {
        for (int64_t c = 0; c < channels; c++) {
            float g = PASSED;
            of_x[c] = TO(scale[c] * g - (FROM(x[c]) - mean[c]) * by_x[c] - by_one[c]);
            if (of_added) of_added[c] = TO(g);
        }
        if (y) y += channels;
        if (of_added) of_added += channels;
    }
}

/* Gradients of all that went in. `y` is the output, where something was added before a relu; its gradient is then
   wanted too. */
int NAMED(norm_backward)(const VALUE *grad, const VALUE *x, const VALUE *y, const float *weight, const float *bias,
                         const float *mean, const float *inverse, int act, int64_t rows, int64_t channels,
                         VALUE *of_x, VALUE *of_added, float *of_weight, float *of_bias, int threads) {
    int64_t parts = parts_of(rows);
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
    NAMED(sum_grads)(act, grad + at, x + at, NULL, end - begin, channels, mean, scale, shift, first, second)
            if (y) NAMED(sum_grads)(RELU, grad + at, x + at, y + at, end - begin, channels, mean, scale, shift, first, second);
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
    (act, grad + at, x + at, NULL, end - begin, channels, mean, scale, shift, by_x, by_one, of_x + at, NULL)
            if (y)
                NAMED(write_grads)
                (RELU, grad + at, x + at, y + at, end - begin, channels, mean, scale, shift, by_x, by_one, of_x + at,
                 of_added + at);
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
