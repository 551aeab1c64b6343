/* The contracts of gemm, gemm_batched and gemm_splitk: sizes, tensors, costs, identities. */
#include "common/call/contract.h"
#include "common/ops/gemm.h"

#define PARAMS(M, N, K)                                                                            \
    SIZE_PARAM("M", 'M', M, "rows of C"), SIZE_PARAM("N", 'N', N, "columns of C"),                 \
        SIZE_PARAM("K", 'K', K, "length of the sums"),                                             \
        CHOICE_PARAM("transpose_a", no_yes, 0, "A is stored as [K,M]"),                            \
        CHOICE_PARAM("transpose_b", no_yes, 0, "B is stored as [N,K]"),                            \
        REAL_PARAM("alpha", 1, -1e6, 1e6, "factor of the product"),                                \
        REAL_PARAM("beta", 0, -1e6, 1e6, "factor of C0, which is added")

static const struct param params[] = {PARAMS(512, 512, 512)};
static const struct param splitk_params[] = {PARAMS(64, 64, 131072)};
static const struct param batched_params[] = {PARAMS(128, 128, 128),
                                              SIZE_PARAM("batch", 'G', 16, "products")};

OF_CALL(int, adds, f->real[GEMM_BETA] != 0)
OF_CALL(const char *, a_shape, f->choice[GEMM_TRANSPOSE_A] ? "KM" : "MK")
OF_CALL(const char *, b_shape, f->choice[GEMM_TRANSPOSE_B] ? "NK" : "KN")
OF_CALL(const char *, batched_a_shape, f->choice[GEMM_TRANSPOSE_A] ? "GKM" : "GMK")
OF_CALL(const char *, batched_b_shape, f->choice[GEMM_TRANSPOSE_B] ? "GNK" : "GKN")

/* Any element of a product can be computed by itself. */
OF_CALL(const char *, each, ((void)f, "GMNK"))

static const struct arg args[] = {
    ARG(gemm, A, "MK", IN | DIFF, NORMAL, .shape_of = a_shape, .sample = each),
    ARG(gemm, B, "KN", IN | DIFF, NORMAL, .shape_of = b_shape, .sample = each),
    ARG(gemm, C0, "MN", IN | DIFF | NOT_BACK, NORMAL, .when = adds, .sample = each),
    ARG(gemm, C, "MN", OUT | DIFF, .sample = each, .overwrites = "C0"),
};

static const struct arg batched_args[] = {
    ARG(gemm, A, "GMK", IN | DIFF, NORMAL, .shape_of = batched_a_shape, .sample = each),
    ARG(gemm, B, "GKN", IN | DIFF, NORMAL, .shape_of = batched_b_shape, .sample = each),
    ARG(gemm, C0, "GMN", IN | DIFF | NOT_BACK, NORMAL, .when = adds, .sample = each),
    ARG(gemm, C, "GMN", OUT | DIFF, .sample = each, .overwrites = "C0"),
};

static int alone(struct call *f)
{
    DIM(f, 'G') = 1;
    return 0;
}

COST(flops, "GMNK", 2, 4)

OF_CALL(double, alpha, f->real[GEMM_ALPHA])
OF_CALL(double, beta, f->real[GEMM_BETA])

static const struct product products[] = {
    {"C", "A", "B", .scale = alpha, .added = "C0", .added_scale = beta},
    {"d_A", "d_C", "B", .scale = alpha},
    {"d_B", "A", "d_C", .scale = alpha},
    {.result = NULL},
};

#define SCALED "alpha=0.5 beta=-1.5 "
#define EACH_LAYOUT "transpose_a=no,yes transpose_b=no,yes; "

static const char *const large[] = {"M=46500 N=46500 K=16", "M=4300000 N=24 K=512",
                                    "M=40 N=4300000 K=512 transpose_b=yes", NULL};

/* The members that all three share. */
#define GEMM                                                                                       \
    .flops = flops, .products = flops, .product = products, .blas = 1, .sites = "term dterm"

const struct op op_gemm = {
    .name = "gemm",
    .formula = "C = alpha op(A) op(B) + beta C0",
    .source = "common/ops/gemm.h",
    GEMM,
    SIGNATURE(gemm, params, args),
    .cases =
        "M=1 N=1 K=1; M=1 N=33 K=7; M=31 N=1 K=33; "
        "M=33 N=65 K=31 " SCALED EACH_LAYOUT "M=64 N=128 K=64 " EACH_LAYOUT
        "M=130 N=72 K=40 " SCALED EACH_LAYOUT "M=17 N=257 K=67 alpha=-2 beta=2; "
        "M=8 N=264 K=328 " EACH_LAYOUT "M=40 N=72 K=456 " SCALED EACH_LAYOUT "M=8 N=520 K=264; "
        "M=3 N=5 K=4200; M=7 N=617 K=3 transpose_b=yes",
    .shapes = "M=257 N=1 K=129 " EACH_LAYOUT "M=1 N=257 K=65 " EACH_LAYOUT
              "M=127 N=129 K=263 " SCALED EACH_LAYOUT "M=256 N=384 K=96 " EACH_LAYOUT
              "M=300 N=200 K=8 beta=1; M=264 N=520 K=328 " EACH_LAYOUT
              "M=2312 N=2824 K=456 alpha=2 beta=1",
    .large = large,
    .derive = alone,
};

const struct op op_gemm_splitk = {
    .name = "gemm_splitk",
    .formula = "C = alpha op(A) op(B) + beta C0, K far beyond M and N",
    .source = "common/ops/gemm.h",
    GEMM,
    SIGNATURE(gemm, splitk_params, args),
    .cases = "M=1 N=1 K=1; M=3 N=5 K=1031 " SCALED EACH_LAYOUT "M=33 N=17 K=2048 " EACH_LAYOUT
             "M=8 N=16 K=2056 " SCALED EACH_LAYOUT "M=3 N=5 K=9000",
    .shapes = "M=1 N=1 K=4999; M=4 N=8 K=1028 " EACH_LAYOUT "M=100 N=124 K=76 " SCALED EACH_LAYOUT
              "M=64 N=64 K=1284 beta=1 " EACH_LAYOUT "M=65 N=127 K=331 transpose_a=yes",
    .derive = alone,
};

const struct op op_gemm_batched = {
    .name = "gemm_batched",
    .formula = "C[g] = alpha op(A[g]) op(B[g]) + beta C0[g]",
    .source = "common/ops/gemm.h",
    GEMM,
    SIGNATURE(gemm, batched_params, batched_args),
    .cases = "M=1 N=1 K=1 batch=1; M=5 N=7 K=3 batch=9; M=33 N=31 K=17 batch=3 " SCALED EACH_LAYOUT
             "M=64 N=64 K=32 batch=2 " EACH_LAYOUT "M=8 N=24 K=72 batch=5 " SCALED EACH_LAYOUT,
    .shapes = "M=1 N=31 K=67 batch=15; M=36 N=68 K=4 batch=3 beta=2 " EACH_LAYOUT
              "M=127 N=3 K=20 batch=4; M=127 N=65 K=257 batch=7",
    .batch = 'G',
};
