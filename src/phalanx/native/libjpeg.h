/* The part of libjpeg's interface that jpeg.c uses, so that it compiles without libjpeg's headers and works with any
 * libjpeg-turbo: the system's, or the one in the wheels of Pillow and torchvision.
 *
 * The library and its caller share three structures. Their beginnings, which is all that is declared here, have been
 * the same since version 6b of 1998; what follows (`rest`) differs between the versions 6.2, 7 and 8 of the interface.
 * How long it is, the library says itself: see `bind` in jpeg.c.
 */

#ifndef PHALANX_LIBJPEG_H
#define PHALANX_LIBJPEG_H

#include <stddef.h>
#include <stdint.h>

enum { GREY = 1, RGB = 2, YCBCR = 3, RGBX = 7 };  /* colour spaces; the last is libjpeg-turbo's own */
enum { ISLOW = 0 };                               /* the accurate integer transform */

struct decompress;

struct errors {
    void (*error_exit)(struct decompress *);
    void (*emit_message)(struct decompress *, int level);
    void (*output_message)(struct decompress *);
    void (*format_message)(struct decompress *, char *buffer);
    void (*reset)(struct decompress *);
    int code;
    union {
        int numbers[8];
        char text[80];
    } details;
    uint8_t rest[256];
};

struct source {
    const uint8_t *next;
    size_t bytes;
    void (*start)(struct decompress *);
    int (*fill)(struct decompress *);
    void (*skip)(struct decompress *, long count);
    int (*resync)(struct decompress *, int desired);
    void (*end)(struct decompress *);
};

struct decompress {
    struct errors *errors;
    void *memory, *progress, *client;
    int is_decompressor, state;
    struct source *source;
    unsigned width, height;
    int components, colours;
    int out_colours;
    unsigned scale_num, scale_denom;
    double gamma;
    int buffered, raw;
    int transform, fancy_upsampling, block_smoothing;
    int quantize, dither, two_pass, num_colours, one_pass, external, two_passes;
    unsigned out_width, out_height;
    int out_colour_components, out_components, out_buffer_height;
    int num_map_colours;
    void *map;
    unsigned next_row;
    uint8_t rest[2048];
};

/* The functions of the library, in the order in which src/phalanx/data/decode/jpeg.py looks them up. */
struct library {
    struct errors *(*std_error)(struct errors *);
    void (*create)(struct decompress *, int version, size_t bytes);
    void (*destroy)(struct decompress *);
    int (*read_header)(struct decompress *, int require_image);
    int (*start)(struct decompress *);
    void (*crop)(struct decompress *, unsigned *left, unsigned *width);
    unsigned (*skip)(struct decompress *, unsigned rows);
    unsigned (*read)(struct decompress *, uint8_t **rows, unsigned count);
    int (*resync)(struct decompress *, int desired);
    void **(*read_coefficients)(struct decompress *);
};

#endif
