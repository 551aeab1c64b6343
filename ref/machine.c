/* The machine of the references: memory of the host, times by the wall clock. */
#include "config.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/call/machine.h"

static const char *unavailable(void)
{
    return NULL;
}

/* OpenBLAS has one thread from now on: the bits of a product do not depend on the number of
 * threads, and OpenBLAS's threads, which spin after a product, take no core from OpenMP's. */
static void enter(struct context *none)
{
    (void)none;
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
    if (openblas_get_num_threads() != 1)
        openblas_set_num_threads(1);
#endif
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

static int zero(const struct call *f, void *to, size_t bytes)
{
    return fill(f->context, to, 0, bytes);
}

static const char *error(int code)
{
    return code ? "failed" : "no error";
}

/* ---- what ref.h compiles once for each type ---- */

/* EACH_TYPE(DO, ...): its prefix, and the type. */
#define EACH_TYPE(DO, ...)                                                                         \
    DO(ref64, F64, ##__VA_ARGS__) DO(ref32, F32, ##__VA_ARGS__) DO(ref_bf16, BF16, ##__VA_ARGS__)
/* The types that have wrong kernels. */
#define EACH_WRONG(DO, ...) DO(ref32, F32, ##__VA_ARGS__) DO(ref_bf16, BF16, ##__VA_ARGS__)

/* By the type of the call's backend: a wide tensor is float in ref_bf16, too. */
static int add(const struct call *f, int wide, void *to, const void *a, const void *b, int64_t n)
{
    switch (f->backend->type) {
#define ADD(prefix, type_)                                                                         \
    case type_: {                                                                                  \
        int prefix##_add_tensors(int wide, void *to, const void *a, const void *b, int64_t n);     \
        return prefix##_add_tensors(wide, to, a, b, n);                                            \
    }
        EACH_TYPE(ADD)
    default: return -1;
    }
}

#define NOISE(prefix, type) _Thread_local struct noise prefix##_noise;
EACH_TYPE(NOISE)

/* OpenMP keeps the threads that a thread's parallel regions have. */
static void disturb(enum dtype type, struct noise noise)
{
    #pragma omp parallel
    switch (type) {
#define SET(prefix, type)                                                                          \
    case type: prefix##_noise = noise; break;
        EACH_TYPE(SET)
    default: break;
    }
}

#define DECLARE(prefix, type, name) extern const struct impl prefix##_##name;
#define DECLARE_WRONG(prefix, type, name) extern const struct impl *const prefix##_wrong_##name[];
#define REFER(prefix, type, name) &prefix##_##name,
#define REFER_WRONG(prefix, type, name) prefix##_wrong_##name,
#define OP(name)                                                                                   \
    EACH_TYPE(DECLARE, name)                                                                       \
    EACH_WRONG(DECLARE_WRONG, name)                                                                \
    static const struct impl *const name##_kernels[] = {EACH_TYPE(REFER, name) NULL};              \
    static const struct impl *const *const name##_wrong[] = {EACH_WRONG(REFER_WRONG, name) NULL};
#include "common/call/ops.def"

static const struct kernels kernels[] = {
#define OP(name) {&op_##name, name##_kernels, name##_wrong},
#include "common/call/ops.def"
    {NULL, NULL, NULL},
};

// clang-format off
const struct machine cpu = {
    .name = "cpu",
    .strerror = error,
    .kernels = kernels,
    .disturb = disturb,
    .device = {.unavailable = unavailable, .enter = enter, .name = device},
    .memory = {.left = memory, .alloc = allocate, .free = release, .put = copy, .get = copy,
               .fill = fill, .zero = zero, .add = add},
    .timing = {.method = "caches warm"},
};
// clang-format on
