/* A driver without a GPU, for a program with kernels: that of Portolan's own tests, with the default stream, in which
   everything is done at once, and with the kernels of `gpu_heat` in C. */
#define cuStreamSynchronize synchronize_stream
#define cuMemcpyDtoHAsync_v2 start_to_host
#define cuMemcpyHtoDAsync_v2 start_to_device
#define cuDeviceGetName name_without_kernels
#include "../../../portolan/tests/device_memory/libcuda.c"
#undef cuStreamSynchronize
#undef cuMemcpyDtoHAsync_v2
#undef cuMemcpyHtoDAsync_v2
#undef cuDeviceGetName

#define POOLS 115 /* CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED */

static R copy(void *to, const void *from, size_t n) { if (!depth || !to || !from) return 1; memcpy(to, from, n); return 0; }
R cuStreamSynchronize(void *s) { return s ? synchronize_stream(s) : 0; }
R cuMemcpyDtoHAsync_v2(void *to, uint64_t at, size_t n, void *s) { return s ? start_to_host(to, at, n, s) : copy(to, real(at, n), n); }
R cuMemcpyHtoDAsync_v2(uint64_t at, const void *from, size_t n, void *s) { return s ? start_to_device(at, from, n, s) : copy(real(at, n), from, n); }
R cuMemsetD8Async(uint64_t at, unsigned char v, size_t n, void *s) { return s ? 1 : cuMemsetD8_v2(at, v, n); }
R cuMemFreeAsync(uint64_t at, void *s) { return s ? 1 : cuMemFree_v2(at); }
R cuCtxGetCurrent(void **c) { *c = depth ? &context_of_all : NULL; return 0; }
R cuDeviceGetName(char *name, int len, int d) { strncpy(name, "the processor", len); return d; }
R cuDeviceGetAttribute(int *value, int what, int d) { *value = what == POOLS; return d; }
R cuGetErrorString(R code, const char **text) { (void)code; *text = "an error of the tests' driver"; return 0; }
R cuModuleLoadData(void **m, const void *image) { if (!strstr(image, ".entry heat_step(") || !strstr(image, ".entry heat_change(")) return 218; *m = (void *)image; return 0; }
R cuModuleUnload(void *m) { (void)m; return 0; }
R cuModuleGetFunction(void **f, void *m, const char *name) {
    (void)m;
    *f = !strcmp(name, "heat_step") ? "step" : !strcmp(name, "heat_change") ? "change" : NULL;
    return *f ? 0 : 500;
}

static void step(const double *from, double *to, size_t rows, size_t columns, double ratio) {
    size_t stride = columns + 2;
    for (size_t y = 1; y <= rows; y++) for (size_t x = 1; x <= columns; x++) {
        const double *at = from + y * stride + x;
        to[y * stride + x] = *at + ratio * (at[-1] + at[1] + *(at - stride) + at[stride] - 4.0 * *at);
    }
}
static void change(const double *a, const double *b, size_t rows, size_t columns, double *largest) {
    size_t stride = columns + 2;
    for (size_t y = 1; y <= rows; y++) for (size_t x = 1; x <= columns; x++) {
        double d = a[y * stride + x] - b[y * stride + x];
        if (d < 0) d = -d;
        if (!(d <= *largest)) *largest = d;
    }
}

/* Kernels may access what is in the blocks of their arguments; every point must have a thread. */
R cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **p, void **extra) {
    if (!depth || s || shared || extra || gz != 1 || bz != 1 || bx * by * bz > 1024) return 1;
    unsigned rows = *(unsigned *)p[2], columns = *(unsigned *)p[3];
    size_t bytes = ((size_t)rows + 2) * ((size_t)columns + 2) * sizeof(double);
    double *one = (double *)real(*(uint64_t *)p[0], bytes), *two = (double *)real(*(uint64_t *)p[1], bytes);
    if (!one || !two) return 700;
    if ((size_t)gx * bx < columns) return 1;
    if (!strcmp(f, "step")) {
        if ((size_t)gy * by < rows) return 1;
        step(one, two, rows, columns, *(double *)p[4]);
    } else {
        double *largest = (double *)real(*(uint64_t *)p[4], sizeof(double));
        if (!largest || gy != 1) return 700;
        change(one, two, rows, columns, largest);
    }
    return 0;
}
