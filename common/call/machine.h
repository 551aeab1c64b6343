/* machine.h - where operations run.
 *
 * A machine (struct machine) is what a folder exports: a device, its memory, its clock, and a list of
 * kernels (struct impl) for each operation, of all types.  A backend (struct backend) pairs a machine
 * with the type in which it stores tensors: a line of backends.def. */
#ifndef MACHINE_H
#define MACHINE_H

#include "common/call/call.h"
#include "common/call/sites.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rates and latencies of a machine, measured on it. */
struct ceilings {
    double memory;                  /* bytes per second, read and written, of a copy */
    double tensor;                  /* FLOP/s of a bf16 matrix product */
    double fp32;                    /* FLOP/s of independent multiply-adds */
    double special;                 /* evaluations per second of independent tanh */
    double flop_time, special_time; /* latency in seconds of one in a dependency chain */
    double launch;                  /* seconds per launch in a sequence of launches */
    double clock;                   /* Hz, during the measurement */
};

/* The launches of a pass, and the one of them that has the most threads: its grid, and what it takes
 * of an SM.  n is 0 where nothing is known, registers -1 where nothing of that one is. */
struct launches {
    int64_t n, blocks, threads; /* threads per block */
    int registers;              /* per thread */
    int spills;                 /* bytes of local memory per thread: spilled registers, arrays */
    int smem;                   /* bytes of shared memory per block */
    int blocks_per_sm;          /* that fit */
    int sms, threads_per_sm;    /* of the device: its SMs, and the threads that one can hold */
};

/* What a machine keeps between calls on one device: streams, handles, memory.  There may be any
 * number, several on one device; a context is used by one host thread at a time.  All backends of a
 * machine use the same.  A machine that keeps nothing, as the references', has none: NULL. */
struct context;

/* Its devices.  open, close, enter, lost and probe are NULL where there is nothing to do; unavailable and
 * name are always there. */
struct device {
    const char *(*unavailable)(void); /* NULL, or why it cannot run in this process */
    int (*count)(void);               /* NULL: it has none */
    /* A context on device number `device`, from 0; NULL after err_set(). */
    struct context *(*open)(int device);
    void (*close)(struct context *x);
    void (*enter)(struct context *x); /* before a pass: it is the calling thread's from now on */
    const char *(*lost)(struct context *x); /* NULL, or why it can no longer be used */
    const char *(*name)(struct context *x); /* of its device */
    int (*probe)(struct context *x, struct ceilings *to); /* measure them now */
};

/* Copies that the host need not wait for go through so many buffers of pinned memory, of so many bytes each. */
enum { RING = 4, RING_BYTES = 8 << 20 };

/* Memory for tensors.  reserve is NULL where alloc() needs none; pinned and all below it where a copy is done when it
 * returns. */
struct memory {
    int64_t (*left)(struct context *x);               /* bytes that are free for tensors */
    int (*reserve)(struct context *x, int64_t bytes); /* allocate them now, for alloc() */
    void *(*alloc)(struct context *x, size_t bytes);
    void (*free)(struct context *x, void *p);
    int (*put)(struct context *x, void *there, const void *here, size_t bytes);
    int (*get)(struct context *x, void *here, const void *there, size_t bytes);
    int (*fill)(struct context *x, void *there, int byte, size_t bytes);
    int (*zero)(const struct call *f, void *to, size_t bytes); /* as a part of a pass */
    /* to = a + b, n elements of the type in which the call's backend stores tensors, or of that of wide ones */
    int (*add)(const struct call *f, int wide, void *to, const void *a, const void *b, int64_t n);
    /* *at becomes the host's buffer i, once the last copy to it or from it is done; NULL: there are none. */
    int (*pinned)(struct context *x, int i, void **at);
    /* Begins to copy buffer i to there, and from there to buffer i, after all that has begun before. */
    int (*send)(struct context *x, void *there, int i, size_t bytes);
    int (*fetch)(struct context *x, int i, const void *there, size_t bytes);
    /* Memory which is none of what reserve() has allocated, for free(); NULL: there is not so much. */
    void *(*aside)(struct context *x, size_t bytes);
    int (*copy)(struct context *x, void *to, const void *from, size_t bytes); /* both there */
};

/* A pass of a call whose tensors are placed. */
struct pass_of {
    const struct call *call;
    enum pass pass;
};

/* How a pass is timed.  All functions are NULL where it is done when it returns, and timed by the
 * clock of the host. */
struct timekeeping {
    /* Begin timing, caches as stated; wait until all is done. */
    int (*start)(struct context *x);
    int (*stop)(struct context *x, double *seconds);
    /* Records the launches of n passes that have run before, one after the other, all in one context (on a GPU
     * as one CUDA graph), without running them.  replay() starts them all at once, so that the time has no
     * gaps between launches.  If all three are NULL, a pass is timed without a recording. */
    int (*record)(const struct pass_of *list, int n, void **recorded);
    int (*replay)(struct context *x, void *recorded);
    void (*forget)(void *recorded);
    struct launches (*launches)(const void *recorded); /* or is NULL */
    const char *method; /* how times are measured, in words: the state of caches, and the replay */
    double warm_up;     /* seconds of runs before the timed ones, in which the clock rises */
};

/* Calls on memory of the caller (api/call.c).  NULL, all: that is any memory of the process, there
 * are no streams, and a pass is done when it returns. */
struct lending {
    /* A context for such calls on x's device, of kernels with impl.products or without, which any
     * number of threads may use at once; NULL after err_set().  It is closed like others. */
    struct context *(*lend)(struct context *x, int products);
    /* NULL, or why it is no memory, or no stream, of that device. */
    const char *(*foreign)(const struct context *lent, const void *p);
    const char *(*foreign_stream)(const struct context *lent, void *stream);
    /* A pass of the call, whose context is lent, on that stream of the caller's; `products` is the
     * workspace of impl.products, lending.products bytes. */
    int (*pass_on)(const struct call *f, enum pass p, void *stream, void *products);
    size_t products;
    /* A copy, which memory.free() frees; NULL: no memory. */
    void *(*keep)(const struct context *lent, const void *here, size_t bytes);
    /* Waits until that stream has done all; an error code. */
    int (*wait_on)(const struct context *lent, void *stream);
};

struct machine {
    const char *name;
    int judged; /* are its results judged by the references, which are the other machines? */
    const char *(*strerror)(int code);
    const struct kernels *kernels; /* of each operation that it has; ends with a NULL operation */
    /* A reference's passes have this noise from now on (sites.h), if the calling thread starts them; of
     * those in float only the order counts.  NULL: it cannot have any. */
    void (*disturb)(enum dtype type, struct noise noise);
    struct device device;
    struct memory memory;
    struct timekeeping timing;
    struct lending lending;
};

struct backend {
    const char *name, *was; /* `was`: its name in older files, which are still read; or NULL */
    const struct machine *machine;
    enum dtype type, wide; /* in which it stores tensors; and those that the contract calls wide */
};

#define BACKEND(name, was, on, ...)                                                                \
    extern const struct machine on;                                                                \
    extern const struct backend name;
#include "common/call/backends.def"

/* ---- backend.c, context.c: the backends, and the kernels of an operation ---- */

/* Every backend, oracle first; ends with NULL. */
const struct backend *const *backends(void);
/* By its name, or by the one it had. */
const struct backend *backend_find(const char *name);

/* The contexts that somebody opened, at most one on a device.  Of each machine the one that was chosen first
 * serves those that name no device: it is on device 0, unless context_use() came first.  For one
 * thread at a time; empty where it is 0. */
struct contexts {
    struct {
        const struct machine *machine;
        struct context *x;
        int device, chosen;
    } of[256];
    int n;
};

/* The chosen one of b's machine; NULL after err_set(), or where a machine has none. */
struct context *context_of(struct contexts *all, const struct backend *b);
/* The one on that device; NULL after err_set(). */
struct context *context_on(struct contexts *all, const struct backend *b, int device);
/* Choose that device's.  NULL, or why not. */
const char *context_use(struct contexts *all, const struct backend *b, int device);
/* NULL, or why b cannot run in the chosen one, or no longer. */
const char *backend_unavailable(struct contexts *all, const struct backend *b);
/* All that are open. */
void contexts_close(struct contexts *all);
/* The name of its device. */
const char *backend_device(struct contexts *all, const struct backend *b);

/* Is it of a machine that is judged?  NULL is not. */
int is_judged(const struct backend *b);
/* The i-th that is, from 0; NULL behind the last. */
const struct backend *judged_backend(int i);

/* The reference that stores tensors of type t in that type, or NULL. */
const struct backend *reference_of(enum dtype t);

/* Has a machine, or with `judged` one that is judged, a kernel of o of that name?  `known` becomes the
 * names that there are, " mma tiled"; "" where there is none. */
enum { MAX_KNOWN = 512 };
int kernel_known(const struct op *o, int judged, const char *name, char known[MAX_KNOWN]);

#ifdef __cplusplus
}
#endif
#endif
