/* cublas.cuh - the functions of cuBLAS that products call.  The library is opened at run time, at
 * the first product, so that a program starts, and other kernels run, without it. */
#ifndef CUBLAS_CUH
#define CUBLAS_CUH

#include <cublas_v2.h>

struct cublas {
    cublasStatus_t (*get_property)(libraryPropertyType, int *);
    cublasStatus_t (*create)(cublasHandle_t *);
    cublasStatus_t (*destroy)(cublasHandle_t);
    cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
    cublasStatus_t (*set_workspace)(cublasHandle_t, void *, size_t);
    cublasStatus_t (*set_math_mode)(cublasHandle_t, cublasMath_t);
    const char *(*get_status_string)(cublasStatus_t);
    cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int M, int N,
                           int K, const void *alpha, const void *a, cudaDataType, int lda,
                           const void *b, cudaDataType, int ldb, const void *beta, void *c,
                           cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t);
    cublasStatus_t (*gemm_strided)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int M,
                                   int N, int K, const void *alpha, const void *a, cudaDataType,
                                   int lda, long long stride_a, const void *b, cudaDataType,
                                   int ldb, long long stride_b, const void *beta, void *c,
                                   cudaDataType, int ldc, long long stride_c, int batch,
                                   cublasComputeType_t, cublasGemmAlgo_t);
    cublasStatus_t (*gemm_batched)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int M,
                                   int N, int K, const void *alpha, const void *const *a,
                                   cudaDataType, int lda, const void *const *b, cudaDataType,
                                   int ldb, const void *beta, void *const *c, cudaDataType, int ldc,
                                   int batch, cublasComputeType_t, cublasGemmAlgo_t);
};

/* The library's functions; NULL if it cannot be used, as *why then says in one sentence.  It is
 * opened once in a process, by whichever thread comes first, and stays open. */
const struct cublas *cublas_open(const char **why);

#endif
