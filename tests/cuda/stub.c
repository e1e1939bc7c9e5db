/* Two GPUs that compute nothing: preloaded, it has torch take its CUDA paths, for tensors that have no data.

   What is not here stays the real library's, and fails: no kernel runs. */

#include <stdlib.h>
#include <string.h>

#include <driver_types.h>

#define OK 0
#define GIB (1UL << 30)

typedef int status;

static _Thread_local int current;
static long handles = 0x1000;

static void *handle(void) { return (void *)(handles += 16); }

status cudaGetDeviceCount(int *count) { *count = 2; return OK; }
status cudaGetDevice(int *device) { *device = current; return OK; }
status cudaSetDevice(int device) { current = device; return OK; }
status cudaDriverGetVersion(int *version) { *version = 13020; return OK; }
status cudaGetLastError(void) { return OK; }
status cudaPeekAtLastError(void) { return OK; }
status cudaDeviceSynchronize(void) { return OK; }
status cudaDeviceCanAccessPeer(int *can, int a, int b) { (void)a; (void)b; *can = 1; return OK; }
status cudaMemGetInfo(size_t *available, size_t *total) { *available = 6 * GIB; *total = 8 * GIB; return OK; }

status cudaMalloc(void **memory, size_t size) { *memory = malloc(size); return OK; }
status cudaFree(void *memory) { free(memory); return OK; }
status cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
    (void)kind; (void)stream; memcpy(to, from, size); return OK;
}
status cudaPointerGetAttributes(struct cudaPointerAttributes *about, const void *memory) {
    (void)memory; memset(about, 0, sizeof *about); return OK;
}
status cudaGetFuncBySymbol(void **function, const void *symbol) { *function = (void *)symbol; return OK; }

status cudaGetDeviceProperties(struct cudaDeviceProp *about, int device) {
    memset(about, 0, sizeof *about);
    strcpy(about->name, "a GPU without kernels");
    memset(&about->uuid, device + 1, sizeof about->uuid);
    about->major = 8;
    about->totalGlobalMem = 8 * GIB;
    about->multiProcessorCount = 8;
    about->warpSize = 32;
    about->maxThreadsPerMultiProcessor = 2048;
    return OK;
}

status cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return OK; }
status cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    (void)flags; (void)priority; *stream = handle(); return OK;
}
status cudaStreamIsCapturing(void *stream, int *capturing) { (void)stream; *capturing = 0; return OK; }
status cudaStreamGetCaptureInfo(void *stream, int *capturing) { (void)stream; *capturing = 0; return OK; }
status cudaThreadExchangeStreamCaptureMode(int *mode) { (void)mode; return OK; }
status cudaStreamQuery(void *stream) { (void)stream; return OK; }
status cudaStreamSynchronize(void *stream) { (void)stream; return OK; }
status cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { (void)stream; (void)event; (void)flags; return OK; }
status cudaEventCreateWithFlags(void **event, unsigned flags) { (void)flags; *event = handle(); return OK; }
status cudaEventRecord(void *event, void *stream) { (void)event; (void)stream; return OK; }
status cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
    (void)event; (void)stream; (void)flags; return OK;
}
status cudaEventQuery(void *event) { (void)event; return OK; }
status cudaEventSynchronize(void *event) { (void)event; return OK; }
status cudaEventDestroy(void *event) { (void)event; return OK; }

/* The driver's, under whose name this is found, too. */
status cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    (void)device; *flags = 0; *active = 1; return OK;
}
