/* The backends ref64, ref32 and ref_bf16: memory of the host, times by the wall clock. */
#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/call/machine.h"
#include "ref/ref.h"
#include "ref/wrong/wrong.h"

#include <stdio.h>
#include <unistd.h>

static const char *unavailable(void)
{
    return NULL;
}

struct context {
    int blas_threads; /* that OpenBLAS had before */
};

/* OpenBLAS has one thread from now on: the bits of a product do not depend on the number of
 * threads, and OpenBLAS's threads, which spin after a product, take no core from OpenMP's. */
static struct context *open_context(int device)
{
    struct context *x = calloc(1, sizeof *x);

    (void)device;
    if (!x)
        return err_null("no memory for a context");
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
    x->blas_threads = openblas_get_num_threads();
    openblas_set_num_threads(1);
#endif
    return x;
}

static void close_context(struct context *x)
{
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
    openblas_set_num_threads(x->blas_threads);
#endif
    free(x);
}

/* "model name" of /proc/cpuinfo, where there is one. */
static const char *device(struct context *x)
{
    static _Thread_local char name[128];
    char line[256];
    FILE *in = fopen("/proc/cpuinfo", "r");

    (void)x;
    snprintf(name, sizeof name, "CPU, %ld cores", sysconf(_SC_NPROCESSORS_ONLN));
    while (in && fgets(line, sizeof line, in))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            line[strcspn(line, "\n")] = 0;
            snprintf(name, sizeof name, "%.90s, %ld cores", strchr(line, ':') + 2,
                     sysconf(_SC_NPROCESSORS_ONLN));
            break;
        }
    if (in)
        fclose(in);
    return name;
}

/* The memory that is available without swapping, as Linux says; else half of it all.  No more
 * than ulimit leaves. */
static int64_t memory(struct context *x)
{
    char line[128];
    long long kib = 0;
    int64_t limit = limits_available(NULL);
    FILE *in = fopen("/proc/meminfo", "r");

    (void)x;
    while (in && !kib && fgets(line, sizeof line, in))
        sscanf(line, "MemAvailable: %lld kB", &kib);
    if (in)
        fclose(in);
    int64_t bytes = kib ? kib * 1024 : (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE) / 2;
    return bytes < limit ? bytes : limit;
}

/* Large tensors on all cores, which also share the work of memory that is touched for the first
 * time. */
enum { CHUNK = 1 << 22 };

static void *allocate(struct context *x, size_t bytes)
{
    (void)x;
    return malloc(bytes);
}

static void release(struct context *x, void *p)
{
    (void)x;
    free(p);
}

static int copy(struct context *x, void *to, const void *from, size_t bytes)
{
    (void)x;
    #pragma omp parallel for if (bytes > CHUNK)
    for (size_t at = 0; at < bytes; at += CHUNK)
        memcpy((char *)to + at, (const char *)from + at, bytes - at < CHUNK ? bytes - at : CHUNK);
    return 0;
}

static int fill(struct context *x, void *to, int byte, size_t bytes)
{
    (void)x;
    #pragma omp parallel for if (bytes > CHUNK)
    for (size_t at = 0; at < bytes; at += CHUNK)
        memset((char *)to + at, byte, bytes - at < CHUNK ? bytes - at : CHUNK);
    return 0;
}

static int add_all(const struct call *f, enum dtype type, void *to, const void *a, const void *b,
                   int64_t n)
{
    (void)f;
    if (type == F32 && sizeof(num) < sizeof(real)) { /* of wide tensors */
        const real *x = a, *y = b;
        #pragma omp parallel for
        for (int64_t i = 0; i < n; i++)
            ((real *)to)[i] = x[i] + y[i];
        return 0;
    }
    const num *x = a, *y = b;
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        ((num *)to)[i] = store(load(x[i]) + load(y[i]));
    return 0;
}

static const char *error(int code)
{
    return code ? "failed" : "no error";
}

#define OP(name) extern const struct impl *const REF(name)[], *const WRONG(name)[];
#include "common/call/ops.def"
#undef OP

static const struct kernels kernels[] = {
#ifdef REF64
#define OP(name) {&op_##name, REF(name), NULL},
#else
#define OP(name) {&op_##name, REF(name), WRONG(name)},
#endif
#include "common/call/ops.def"
#undef OP
    {NULL, NULL, NULL},
};

_Thread_local struct noise REF(noise);

/* OpenMP keeps the threads that a thread's parallel regions have. */
static void disturb(struct noise noise)
{
    #pragma omp parallel
    REF(noise) = noise;
}

#ifdef REF64

const struct backend ref64 = {
    .name = "ref64",
    .type = F64,
    .wide = F64,
    .disturb = disturb,
#elif defined REF32
const struct backend ref32 = {
    .name = "ref32",
    .disturb = disturb,
    .type = F32,
    .wide = F32,
#else
const struct backend ref_bf16 = {
    .name = "ref_bf16",
    .was = "ref16",
    .disturb = disturb,
    .type = BF16,
    .wide = F32,
#endif
    .unavailable = unavailable,
    .open = open_context,
    .close = close_context,
    .device = device,
    .memory = memory,
    .alloc = allocate,
    .free = release,
    .put = copy,
    .get = copy,
    .fill = fill,
    .add = add_all,
    .method = "caches warm",
    .strerror = error,
    .kernels = kernels,
};
