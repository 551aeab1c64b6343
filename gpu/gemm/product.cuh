/* product.cuh - C = alpha A B + beta C by cuBLAS; in the emulated build, which has no
 * cuBLAS, by a plain kernel. */
#ifndef PRODUCT_CUH
#define PRODUCT_CUH

#include "gpu/gpu.cuh"

/* An operand [rows,columns]: dense and row-major, or, transposed, stored as its transpose. */
template <typename T>
struct matrix {
    const T *at;
    int64_t rows, columns;
    bool transposed;
};

/* c [a.rows,b.columns] = a b + beta c.  a and b are bf16 or float, c is of either type, and the
 * sums are float.  Returns 0, an error code of CUDA, or from PRODUCT_FAILED on one for
 * product_error(). */
template <typename T, typename C>
int product(struct context *on, const matrix<T> &a, const matrix<T> &b, float beta, C *c);

#ifndef CUDA_EMULATE
/* c[g] = alpha a[g] b[g] + beta c[g], g < batch; each batch is contiguous. */
template <typename T, typename C>
int product_batch(struct context *on, int64_t batch, float alpha, const matrix<T> &a,
                  const matrix<T> &b, float beta, C *c);
#endif

/* c[i] = a b[i] + beta c[i], i < n <= PRODUCTS_MAX, in one launch.  All b[i] have the same size.
 * `workspace` is on the device. */
enum { PRODUCTS_MAX = 4 };
struct product_pointers {
    const void *a[PRODUCTS_MAX], *b[PRODUCTS_MAX];
    void *c[PRODUCTS_MAX];
};
template <typename T>
int products(struct context *on, int n, const matrix<T> &a, const matrix<T> *b, float beta,
             T *const *c, product_pointers *workspace);

/* Frees what products keep in a context; of a lent one's copy, gives back the handle. */
void product_end(struct context *x);
/* Opens cuBLAS on the thread's device before a first product does; returns as product(). */
int product_prepare(struct context *x);

/* Bytes of cuBLAS's workspace: its default on Hopper. */
static const size_t PRODUCTS_WORKSPACE = 32 << 20;

/* PRODUCT_FAILED + a status of cuBLAS, of which 0 would be success; or a kernel that does not say
 * that it uses products (impl.products) did, in a lent context. */
enum {
    PRODUCT_FAILED = 100000,
    PRODUCT_WITHOUT_CUBLAS = PRODUCT_FAILED,
    PRODUCT_UNDECLARED = 2 * PRODUCT_FAILED
};
const char *product_error(int code);

#endif
