/* A driver without a device: "device" memory is a file that is mapped twice: at addresses that nobody can touch,
   and, for the driver, elsewhere. Where it is managed anybody can touch it. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int R;
typedef struct Block { char *seen, *real; size_t len; int pool, managed; struct Block *next; } Block;
/* A copy is made when somebody asks about an event behind it; any thread may put one into any stream. */
typedef struct Copy { void *to; const void *from; size_t len; long turn; struct Copy *next; } Copy;
typedef struct Stream { Copy *first, *last; long put, made; int captured; } Stream;
typedef struct Event { Stream *stream; long turn; int left; } Event;
static Block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int context_of_all;
static __thread int depth;
static __thread int relaxed; /* this thread's calls have nothing to do with captures */
static int captures;
long fake_started, fake_registered, fake_streams, fake_retained;

/* What may not be called while anybody captures a stream. */
static int forbidden(void) { return !relaxed && __atomic_load_n(&captures, __ATOMIC_SEQ_CST); }
static Block *block_of(uint64_t at, size_t len) {
    Block *found = NULL;
    pthread_mutex_lock(&lock);
    for (Block *b = blocks; b; b = b->next)
        if (at >= (uint64_t)b->seen && at + len <= (uint64_t)b->seen + b->len) found = b;
    pthread_mutex_unlock(&lock);
    return found;
}

static char *real(uint64_t at, size_t len) {
    Block *b = block_of(at, len);
    return b ? b->real + (at - (uint64_t)b->seen) : NULL;
}
R cuInit(unsigned f) { return f ? 1 : 0; }
R cuDeviceGet(int *d, int n) { *d = n; return n ? 101 : 0; }
R cuDeviceGetCount(int *n) { *n = 1; return 0; }
R cuDeviceGetName(char *name, int len, int d) { if (d || len < 5) return 1; memcpy(name, "fake", 5); return 0; }
R cuDevicePrimaryCtxRetain(void **c, int d) { if (d) return 101; __sync_fetch_and_add(&fake_retained, 1); *c = &context_of_all; return 0; }
R cuDevicePrimaryCtxRelease_v2(int d) { if (d) return 101; __sync_fetch_and_sub(&fake_retained, 1); return 0; }
R cuCtxSetCurrent(void *c) { if (c != &context_of_all) return 201; depth = 1; return 0; }
R cuCtxSynchronize(void) { return !depth ? 201 : forbidden() ? 900 : 0; }
R cuCtxPushCurrent_v2(void *c) { if (c != &context_of_all) return 201; depth++; return 0; }
R cuCtxPopCurrent_v2(void **c) { if (!depth) return 201; depth--; *c = &context_of_all; return 0; }
R cuThreadExchangeStreamCaptureMode(int *mode) { int was = relaxed ? 2 : 0; relaxed = *mode == 2; *mode = was; return 0; }
R cuStreamCreate(void **s, unsigned flags) { if (!depth || flags) return 1; __sync_fetch_and_add(&fake_streams, 1); *s = calloc(1, sizeof(Stream)); return 0; }
R cuStreamDestroy_v2(void *s) { if (!depth || ((Stream *)s)->first) abort(); __sync_fetch_and_sub(&fake_streams, 1); free(s); return 0; }
R cuStreamSynchronize(void *s) { return !depth || !s ? 1 : forbidden() ? 900 : 0; }
R cuStreamBeginCapture_v2(void *s, int mode) { if (!s || mode) return 1; ((Stream *)s)->captured = 1; __sync_fetch_and_add(&captures, 1); return 0; }
R cuStreamEndCapture(void *s, void **graph) { if (!s || !((Stream *)s)->captured) return 1; ((Stream *)s)->captured = 0; *graph = NULL; __sync_fetch_and_sub(&captures, 1); return 0; }
/* Ranges of the host's memory that are locked. */
typedef struct Lock { uintptr_t at; size_t len; struct Lock *next; } Lock;
static Lock *locks;
static int is_locked(uintptr_t at) {
    pthread_mutex_lock(&lock);
    Lock *l = locks;
    while (l && !(at >= l->at && at < l->at + l->len)) l = l->next;
    pthread_mutex_unlock(&lock);
    return l != NULL;
}
R cuPointerGetAttribute(void *out, int what, uint64_t at) {
    Block *b = block_of(at, 1);
    if (!b && what == 2 && is_locked(at)) { *(unsigned *)out = 1; return 0; }
    if (!b) return 1;
    if (what == 1) *(void **)out = b->pool ? NULL : &context_of_all;
    else if (what == 2) *(unsigned *)out = 2;
    else if (what == 8) *(unsigned *)out = b->managed;
    else if (what == 9) *(int *)out = 0;
    else return 1;
    return 0;
}
R cuPointerSetAttribute(const void *value, int what, uint64_t at) { Block *b = block_of(at, 1); return !depth || !b || b->pool || what != 6 || *(const unsigned *)value != 1; }
static R alloc(uint64_t *at, size_t len, int pool, int managed) {
    if (!depth) return 201;
    if (forbidden()) return 900;
    int fd = memfd_create("device", 0);
    Block *b = malloc(sizeof *b);
    if (fd < 0 || ftruncate(fd, len)) return 2;
    b->seen = mmap(NULL, len, managed ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED, fd, 0);
    b->real = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (b->seen == MAP_FAILED || b->real == MAP_FAILED) return 2;
    b->len = len;
    b->pool = pool;
    b->managed = managed;
    pthread_mutex_lock(&lock); b->next = blocks; blocks = b; pthread_mutex_unlock(&lock);
    *at = (uint64_t)b->seen;
    return 0;
}
R cuMemAlloc_v2(uint64_t *at, size_t len) { return alloc(at, len, 0, 0); }
R cuMemAllocManaged(uint64_t *at, size_t len, unsigned flags) { return flags != 1 ? 1 : alloc(at, len, 0, 1); }
R cuMemAllocAsync(uint64_t *at, size_t len, void *s) { return s ? 1 : alloc(at, len, 1, 0); }
R cuMemFree_v2(uint64_t at) {
    pthread_mutex_lock(&lock);
    for (Block **p = &blocks; *p; p = &(*p)->next) if ((uint64_t)(*p)->seen == at) {
        Block *b = *p; *p = b->next; pthread_mutex_unlock(&lock);
        munmap(b->seen, b->len); munmap(b->real, b->len); free(b); return 0;
    }
    pthread_mutex_unlock(&lock);
    return 1;
}
R cuMemsetD8_v2(uint64_t at, unsigned v, size_t n) { char *r = real(at, n); if (!depth || !r) return 1; memset(r, v, n); return 0; }
static R start(void *to, const void *from, size_t n, void *stream) {
    Stream *s = stream;
    if (!depth || !to || !from || !s || s->captured) return 1;
    __sync_fetch_and_add(&fake_started, 1);
    Copy *c = malloc(sizeof *c);
    pthread_mutex_lock(&lock);
    *c = (Copy){ to, from, n, ++s->put, NULL };
    if (s->first) s->last->next = c; else s->first = c;
    s->last = c;
    pthread_mutex_unlock(&lock);
    return 0;
}
/* Makes what is before an event in its stream. */
static void make(Event *e) {
    pthread_mutex_lock(&lock);
    for (Copy *c; e->stream && (c = e->stream->first) && c->turn <= e->turn; free(c)) {
        memcpy(c->to, c->from, c->len);
        e->stream->first = c->next;
        e->stream->made = c->turn;
    }
    pthread_mutex_unlock(&lock);
}
static int made(Event *e) {
    pthread_mutex_lock(&lock);
    int is = !e->stream || e->stream->made >= e->turn;
    pthread_mutex_unlock(&lock);
    return is;
}
R cuMemcpyDtoHAsync_v2(void *to, uint64_t at, size_t n, void *s) { return start(to, real(at, n), n, s); }
R cuMemcpyHtoDAsync_v2(uint64_t at, const void *from, size_t n, void *s) { return start(real(at, n), from, n, s); }
R cuEventCreate(void **e, unsigned flags) { if (!depth || flags != 2) return 1; *e = calloc(1, sizeof(Event)); return 0; }
R cuEventRecord(void *p, void *s) { Event *e = p; if (!depth || !s) return 1; pthread_mutex_lock(&lock); *e = (Event){ s, ((Stream *)s)->put, 3 }; pthread_mutex_unlock(&lock); return 0; }
R cuEventSynchronize(void *p) { if (!depth) return 1; if (forbidden()) return 900; make(p); return 0; }
R cuEventQuery(void *p) { Event *e = p; if (forbidden()) return 900; if (!made(e) && e->left-- > 0) return 600; return cuEventSynchronize(p); }
R cuEventDestroy_v2(void *p) { if (!depth || !made(p)) abort(); free(p); return 0; }
R cuMemHostRegister_v2(void *at, size_t n, unsigned flags) { if (forbidden()) return 900; if (!depth || flags != 1 || (uintptr_t)at % 4096 || !n) return 1; __sync_fetch_and_add(&fake_registered, 1);
    Lock *l = malloc(sizeof *l);
    pthread_mutex_lock(&lock); *l = (Lock){ (uintptr_t)at, n, locks }; locks = l; pthread_mutex_unlock(&lock);
    return 0;
}
R cuMemHostUnregister(void *at) {
    if (!depth) return 1;
    pthread_mutex_lock(&lock);
    Lock **p = &locks, *gone;
    while (*p && (*p)->at != (uintptr_t)at) p = &(*p)->next;
    if ((gone = *p)) *p = gone->next;
    pthread_mutex_unlock(&lock);
    if (!gone) return 1;
    free(gone);
    __sync_fetch_and_sub(&fake_registered, 1);
    return 0;
}
R cuGetErrorName(R code, const char **name) { *name = code == 600 ? "CUDA_ERROR_NOT_READY" : "CUDA_ERROR_FAKE"; return 0; }
__attribute__((destructor)) static void end(void) {
    if (getenv("FAKE_CUDA_REPORT")) { char t[160]; int n = 0; n = __builtin_snprintf(t, 160, "fake driver: %ld copies started, %ld pieces locked, %ld streams, %ld contexts kept\n", fake_started, fake_registered, fake_streams, fake_retained); (void)!write(2, t, n); }
}
