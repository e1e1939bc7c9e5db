/* Boxes of images in memory, resized. src/phalanx/data/decode/resize.py is its caller; resample.h has the arithmetic. */

#include "resample.h"

/* Pixels of three bytes → of four, the fourth being anything. `readable` bytes may be read, SLACK too many written. */
static void widen(const uint8_t *restrict row, size_t pixels, size_t readable, uint8_t *restrict out) {
    size_t done = 0;
#ifdef __AVX2__
    const __m128i spread = _mm_set_epi8(11, 11, 10, 9, 8, 8, 7, 6, 5, 5, 4, 3, 2, 2, 1, 0);
    for (; done < pixels && 3 * done + 16 <= readable; done += 4) {
        __m128i four = _mm_loadu_si128((const __m128i *)(row + 3 * done));
        _mm_storeu_si128((__m128i *)(out + 4 * done), _mm_shuffle_epi8(four, spread));
    }
#else
    (void)readable;
#endif
    for (; done < pixels; done++) memcpy(out + 4 * done, row + 3 * done, 3);
}

/* One box (top, left, height, width) of an image (height, width, channels) → (size, size, channels). 0 where the box is
 * senseless or memory ran out. */
static int resize(const uint8_t *pixels, int height, int width, int channels, const double *box, int flip, int size,
                  int bicubic, int reflect, uint8_t *out) {
    struct resizer r;
    struct view view = {box[0], box[1], box[2], box[3]};
    int first, last, left, right, made = 0;
    uint8_t *wide = NULL;
    if (!resizer_init(&r, height, width, channels, view, size, bicubic, reflect, 0, flip)) goto end;
    rows(&r, &first, &last);
    columns(&r, &left, &right);
    wide = malloc((size_t)(right - left) * (channels == 3 ? 4 : channels) + SLACK);
    if (!wide) goto end;
    for (int y = first; y < last; y++) {
        size_t at = ((size_t)y * width + left) * channels, count = right - left;
        if (channels == 3) widen(pixels + at, count, (size_t)height * width * channels - at, wide);
        else memcpy(wide, pixels + at, count * channels);
        feed(&r, y, wide, left);
    }
    finish(&r, 1, 0, out);
    made = 1;
end:
    free(wide);
    resizer_free(&r);
    return made;
}

/* Boxes of many images, each where its pointer says. Returns the number of the first that failed, or `count`. */
int resample_views(int count, const uint8_t *const *images, const int32_t *heights, const int32_t *widths, int channels,
                   const double *boxes, const uint8_t *flips, int size, int bicubic, int reflect, uint8_t *out) {
    size_t bytes = (size_t)size * size * channels;
    for (int i = 0; i < count; i++)
        if (!resize(images[i], heights[i], widths[i], channels, boxes + 4 * i, flips[i], size, bicubic, reflect,
                    out + bytes * i))
            return i;
    return count;
}
