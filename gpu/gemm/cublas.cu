/* cublas: opens NVIDIA's library by dlopen.  In this order, and the first that is there counts:
 *
 *     a copy that the process has loaded already, as PyTorch does;
 *     the file that the environment variable ABLATE_CUBLAS names, and then no other;
 *     the dynamic loader's own search: LD_LIBRARY_PATH, ldconfig's directories;
 *     the directory of the CUDA toolkit that configure found.
 *
 * The version must be that of the header, since an enumeration may change with it. */
#include "config.h"

#include "gpu/gpu.cuh"

#ifndef CUDA_EMULATE

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpu/gemm/cublas.cuh"

#define SONAME "libcublas.so." NUMBER(CUBLAS_VER_MAJOR)

struct opened {
    struct cublas functions;
    void *handle;
    char why[1000]; /* it cannot be used */
};

/* NULL with the reason in *to. */
static void *find_library(struct opened *to)
{
    const int mode = RTLD_NOW | RTLD_LOCAL;
    const char *named = getenv("ABLATE_CUBLAS");
    void *library = dlopen(SONAME, mode | RTLD_NOLOAD);

    if (library)
        return library;
    if (named && *named) {
        library = dlopen(named, mode);
        if (!library)
            snprintf(to->why, sizeof to->why,
                     "cuBLAS cannot be opened, the file that ABLATE_CUBLAS names: %s", dlerror());
        return library;
    }
    library = dlopen(SONAME, mode);
    if (!library)
        library = dlopen(CUBLAS_DIR "/" SONAME, mode);
    if (!library)
        snprintf(to->why, sizeof to->why,
                 "cuBLAS was not found: " SONAME " is not loaded in this process, not where the "
                 "dynamic loader looks (LD_LIBRARY_PATH, ldconfig), and not in " CUBLAS_DIR
                 "; ABLATE_CUBLAS can name the file");
    return library;
}

template <typename F>
static int find_function(struct opened *to, const char *name, F *function)
{
    *function = (F)dlsym(to->handle, name);
    if (!*function)
        snprintf(to->why, sizeof to->why, "cuBLAS lacks %s; " SONAME " is needed", name);
    return !*function;
}

/* It does not compile unless the header's function has the member's type. */
#define FIND(name, member)                                                                         \
    find_function<decltype(static_cast<decltype(f->member)>(&name))>(to, #name, &f->member)

static int find_functions(struct opened *to)
{
    struct cublas *f = &to->functions;
    return FIND(cublasGetProperty, get_property) || FIND(cublasCreate_v2, create) ||
           FIND(cublasDestroy_v2, destroy) || FIND(cublasSetStream_v2, set_stream) ||
           FIND(cublasSetWorkspace_v2, set_workspace) || FIND(cublasSetMathMode, set_math_mode) ||
           FIND(cublasGetStatusString, get_status_string) || FIND(cublasGemmEx, gemm) ||
           FIND(cublasGemmStridedBatchedEx, gemm_strided) ||
           FIND(cublasGemmBatchedEx, gemm_batched);
}

static struct opened opened_once(void)
{
    struct opened to = {};
    int major = 0;

    to.handle = find_library(&to);
    if (!to.handle || find_functions(&to))
        return to;
    to.functions.get_property(MAJOR_VERSION, &major);
    if (major != CUBLAS_VER_MAJOR)
        snprintf(to.why, sizeof to.why, "cuBLAS has version %d; " SONAME " is needed", major);
    return to;
}

const struct cublas *cublas_open(const char **why)
{
    static const struct opened cublas = opened_once();
    *why = cublas.why;
    return *cublas.why ? NULL : &cublas.functions;
}

#endif
