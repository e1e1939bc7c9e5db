/* What driver_types.h of the CUDA runtime's wheel asks for, as a plain C compiler understands it. */
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cuda_builtin_vector_align8(tag, members) struct tag { members } __attribute__((aligned(8)))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDARTAPI
#define __host__
#define __device__
