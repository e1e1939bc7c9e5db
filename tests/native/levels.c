/* levels FOLDER LEVEL [JPEG]: what the libraries of a wheel compute for fixed inputs. Lines "name bits HASH" are the same
   for every level and machine; "name within 1" says that the largest error is no larger than it may be. test_levels.py
   runs this on this machine's levels, and under qemu on those of another. */

#include <dlfcn.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *folder, *level;
static uint64_t state;

static void *function(const char *library, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s.so", folder, library, level);
    void *handle = dlopen(path, RTLD_NOW), *found = handle ? dlsym(handle, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

static uint32_t draw(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static float number(void) { return (float)((int32_t)(draw() % 20001) - 10000) / 4096; }

static float *numbers(size_t count) {
    float *made = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    for (size_t i = 0; i < count; i++) made[i] = number();
    return made;
}

static uint64_t hash = 14695981039346656037u; /* FNV-1a */

static void add(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * 1099511628211u;
}

static void say(const char *name) {
    printf("%s bits %016llx\n", name, (unsigned long long)hash);
    hash = 14695981039346656037u;
    state = 1;
}

static void say_error(const char *name, double error, double largest) {
    printf("%s within %d\n", name, error <= largest);
    if (!(error <= largest)) fprintf(stderr, "%s: error %g\n", name, error);
    state = 1;
}

enum { COUNT = 1003 };

static void two_bit(void) {
    void (*encode)(const float *, float *, float, size_t, uint8_t *) = function("two_bit", "two_bit_encode");
    void (*decode_add)(const uint8_t *, float, size_t, float *) = function("two_bit", "two_bit_decode_add");
    float *gradient = numbers(COUNT), *residual = numbers(COUNT);
    uint8_t packed[COUNT] = {0};
    encode(gradient, residual, 0.5f, COUNT, packed);
    decode_add(packed, 0.5f, COUNT, gradient);
    add(packed, (COUNT + 3) / 4), add(residual, COUNT * 4), add(gradient, COUNT * 4);
    say("two_bit");
}

static void one_bit(void) {
    void (*encode)(float *, float, float, size_t, uint8_t *) = function("one_bit", "one_bit_encode");
    void (*decode_add)(const uint8_t *, float, float, size_t, float *) = function("one_bit", "one_bit_decode_add");
    float *residual = numbers(COUNT), *sums = numbers(COUNT);
    uint8_t packed[COUNT] = {0};
    encode(residual, 0.7f, -0.3f, COUNT, packed);
    decode_add(packed, 0.7f, -0.3f, COUNT, sums);
    add(packed, (COUNT + 7) / 8), add(residual, COUNT * 4), add(sums, COUNT * 4);
    say("one_bit");
}

static void top_k(void) {
    void (*take)(float *, size_t, size_t, uint32_t *, float *) = function("top_k", "top_k_take");
    float *values = numbers(COUNT), taken[100];
    uint32_t indices[100];
    take(values, COUNT, 100, indices, taken);
    add(values, COUNT * 4), add(indices, sizeof indices), add(taken, sizeof taken);
    say("top_k");
}

static void resample(void) {
    int (*views)(int, const uint8_t *const *, const int32_t *, const int32_t *, int, const double *, const uint8_t *, int,
                 int, int, uint8_t *) = function("resample", "resample_views");
    enum { HEIGHT = 61, WIDTH = 83, SIZE = 29 };
    static uint8_t pixels[HEIGHT * WIDTH * 4], out[SIZE * SIZE * 3];
    const uint8_t *image = pixels, flip = 1;
    const double boxes[3][4] = {{0, 0, HEIGHT, WIDTH}, {3.25, 7.5, 20, 14}, {-5, 30, 70, 60}};
    int32_t height = HEIGHT, width = WIDTH;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)draw();
    for (int i = 0; i < 12; i++) {
        int channels = i % 2 ? 3 : 1;
        if (views(1, &image, &height, &width, channels, boxes[i % 3], &flip, SIZE, i % 4 < 2, i % 5 == 0, out) != 1) exit(1);
        add(out, (size_t)SIZE * SIZE * channels);
    }
    say("resample");
}

static void server_queues(void) {
    struct {
        int64_t workers, servers, hosts, messages, steps, mode, bound, prefetch;
        double nic, latency_s, batch_s, before_s, backward_s;
        const int64_t *places[3];
        const double *work[8];
        double *moments[4];
    } in = {2, 1, 2, 3, 4, 0, 0, 2, 1e9, 1e-5, 0.001, 0.01, 0.03, {0}, {0}, {0}};
    int (*run)(void *) = function("server_queues", "server_queues");
    static const int64_t zeros[8], hosts[2] = {0, 1};
    static double values[8][8], results[4][8];
    in.places[0] = zeros, in.places[1] = hosts, in.places[2] = zeros;
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 8; k++) values[i][k] = i == 7 ? 1 + (draw() % 100) / 300.0 : (draw() % 1000) * (i == 2 || i == 3 ? 7e3 : 7e-6);
        in.work[i] = values[i];
    }
    for (int i = 0; i < 4; i++) in.moments[i] = results[i];
    if (run(&in)) exit(1);
    add(results, sizeof results);
    say("server_queues");
}

struct settings {
    int32_t size, channels, bicubic, reflect, exact, orient;
    int64_t max_pixels, max_scans;
};

/* Only what is decoded without libjpeg. */
static void jpeg(const char *path) {
    void (*sizes)(int, const uint8_t *const *, const int64_t *, const struct settings *, int64_t *) =
        function("jpeg", "jpeg_sizes");
    void (*decode)(int, const uint8_t *const *, const int64_t *, const double *, const uint8_t *, const struct settings *,
                   uint8_t *const *, uint8_t *) = function("jpeg", "jpeg_decode");
    static uint8_t data[1 << 20], out[64 * 64 * 3];
    FILE *file = fopen(path, "rb");
    int64_t bytes = file ? (int64_t)fread(data, 1, sizeof data, file) : 0, size[2];
    const uint8_t *at = data, flip = 0;
    uint8_t made, *to = out;
    const struct settings settings = {64, 3, 1, 0, 1, 0, 1 << 24, 100};
    sizes(1, &at, &bytes, &settings, size);
    add(size, sizeof size);
    say("jpeg_sizes");
    const double view[4] = {1, 2, size[0] - 3.5, size[1] - 4};
    decode(1, &at, &bytes, view, &flip, &settings, &to, &made);
    if (made != 2) return; /* for libjpeg, which is not here */
    add(out, sizeof out);
    say("jpeg_decode");
}

enum { IMAGES = 2, SIDE = 9, INNER = 16, OUTER = 40, THREADS = 2 };

static void winograd(void) {
    int (*convolve)(const float *, const float *, const int64_t *, int, float *, int64_t, int64_t, int64_t, int64_t,
                    int64_t, int64_t, int) = function("winograd", "winograd_convolve");
    static float y[IMAGES * SIDE * SIDE * OUTER];
    const int64_t strides[4] = {1, 9 * INNER, 3 * INNER, INNER}; /* of a weight [outer][3][3][inner] */
    float *x = numbers(IMAGES * SIDE * SIDE * INNER), *weight = numbers(OUTER * 9 * INNER);
    double error = 0, largest = 0;
    if (convolve(x, weight, strides, 0, y, IMAGES, SIDE, SIDE, INNER, OUTER, 1, THREADS)) exit(1);
    for (int at = 0; at < IMAGES * SIDE * SIDE; at++)
        for (int o = 0; o < OUTER; o++) {
            double sum = 0;
            for (int i = 0; i < 9; i++) {
                int row = at / SIDE % SIDE + i / 3 - 1, column = at % SIDE + i % 3 - 1;
                if (row < 0 || row >= SIDE || column < 0 || column >= SIDE) continue;
                const float *pixel = x + ((at / (SIDE * SIDE) * SIDE + row) * SIDE + column) * INNER;
                for (int c = 0; c < INNER; c++) sum += (double)pixel[c] * weight[(o * 9 + i) * INNER + c];
            }
            error = fmax(error, fabs(sum - y[at * OUTER + o]));
            largest = fmax(largest, fabs(sum));
        }
    say_error("winograd", error / largest, 1e-4);
}

static void norm(void) {
    int (*forward)(const float *, const float *, const float *, const float *, float, int, int64_t, int64_t, float *,
                   float *, float *, float *, int) = function("norm", "norm_forward_f32");
    enum { ROWS = 300, CHANNELS = 24, RELU = 1 };
    static float y[ROWS * CHANNELS], mean[CHANNELS], variance[CHANNELS], inverse[CHANNELS];
    float *x = numbers(ROWS * CHANNELS), *weight = numbers(CHANNELS), *bias = numbers(CHANNELS);
    double error = 0;
    if (forward(x, NULL, weight, bias, 1e-5f, RELU, ROWS, CHANNELS, y, mean, variance, inverse, THREADS)) exit(1);
    for (int c = 0; c < CHANNELS; c++) {
        double sum = 0, squares = 0;
        for (int r = 0; r < ROWS; r++) sum += x[r * CHANNELS + c];
        for (int r = 0; r < ROWS; r++) squares += pow(x[r * CHANNELS + c] - sum / ROWS, 2);
        for (int r = 0; r < ROWS; r++) {
            double z = (x[r * CHANNELS + c] - sum / ROWS) / sqrt(squares / ROWS + 1e-5) * weight[c] + bias[c];
            error = fmax(error, fabs(fmax(z, 0) - y[r * CHANNELS + c]));
        }
    }
    say_error("norm", error, 1e-4);
}

int main(int count, char **words) {
    if (count < 3) return 2;
    folder = words[1], level = words[2], state = 1;
    if (omp_get_max_threads() < 1) return 1; /* links the OpenMP library, whose functions the libraries want */
    two_bit(), one_bit(), top_k(), resample(), server_queues(), winograd(), norm();
    if (count > 3) jpeg(words[3]);
    return 0;
}
