/* An operation forward and backward on a GPU, on tensors and a stream of your own, both passes in one
 * CUDA graph; then the same on the CPU, to compare.  Without a GPU it says so, and exits with 77.
 *
 *     nvcc -std=c++17 call.cu $(pkg-config --cflags --libs ablate) -o call
 *     ./call
 *     ./call 'softmax rows=3 columns=5'
 */
#include <ablate.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void stop(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static void check(cudaError_t e)
{
    if (e != cudaSuccess)
        stop(cudaGetErrorString(e));
}

/* Zeros, at a multiple of 256 bytes as a workspace needs it; cudaMalloc's addresses are such. */
static void *zeros(int64_t bytes, bool on_gpu)
{
    const size_t size = (bytes + 255) / 256 * 256;
    void *p = on_gpu ? NULL : aligned_alloc(256, size);
    if (on_gpu)
        check(cudaMalloc(&p, size));
    else if (!p)
        stop("no memory");
    on_gpu ? check(cudaMemset(p, 0, size)) : (void)memset(p, 0, size);
    return p;
}

static int64_t bytes_of(const struct abl_tensor &t, abl_dtype type)
{
    return t.count * (type == ABL_FP64 || type == ABL_INT64 ? 8 : type == ABL_FP32 ? 4 : 2);
}

/* A call, and the memory that it runs on. */
struct passes {
    abl_call *call;
    std::vector<void *> tensors, gradients;
    void *workspace;
    int64_t bytes;

    passes(const char *words, const char *backend, bool on_gpu)
    {
        struct abl_tensor t;
        if (!(call = abl_call_new(words, backend, 0, NULL)))
            stop(abl_error());
        for (int i = 0; abl_call_tensor(call, i, &t) == 0; i++) {
            tensors.push_back(zeros(bytes_of(t, t.dtype), on_gpu));
            gradients.push_back(t.has_gradient ? zeros(bytes_of(t, t.grad_dtype), on_gpu) : NULL);
        }
        bytes =
            std::max(abl_call_workspace(call, ABL_FORWARD), abl_call_workspace(call, ABL_BACKWARD));
        workspace = bytes ? zeros(bytes, on_gpu) : NULL;
    }

    /* Puts both on the stream, and waits for nothing; on the CPU they are done. */
    void run(cudaStream_t stream) const
    {
        void *const *x = tensors.data(), *const *g = gradients.data();
        if (abl_call_run(call, ABL_FORWARD, x, NULL, workspace, bytes, stream) ||
            abl_call_run(call, ABL_BACKWARD, x, g, workspace, bytes, stream))
            stop(abl_error());
    }
};

/* The same numbers for both, from -0.5 to 0.5; indices, which are whole numbers, stay 0. */
static void fill(void *host, void *device, int64_t n, int seed)
{
    float *x = (float *)host;
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)((37 * i + 13 * seed) % 101 - 50) / 100;
    check(cudaMemcpy(device, host, n * sizeof *x, cudaMemcpyHostToDevice));
}

/* The largest difference, relative to the largest number of the CPU. */
static double difference(const void *host, const void *device, int64_t n)
{
    std::vector<float> got(n);
    double top = 1e-30, worst = 0;
    check(cudaMemcpy(got.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (int64_t i = 0; i < n; i++) {
        const double want = ((const float *)host)[i], off = std::abs(got[i] - want);
        top = std::max(top, std::abs(want));
        worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    }
    return worst / top;
}

int main(int argc, char **argv)
{
    const char *words = argc > 1 ? argv[1] : "e74_cell steps=6 batch=2 heads=2 n_state=4";
    if (abl_unavailable("gpu32")) {
        printf("%s\n", abl_unavailable("gpu32"));
        return 77;
    }
    const passes cpu(words, "ref32", false), gpu(words, "gpu32", true);
    struct abl_tensor t;
    for (int i = 0; abl_call_tensor(cpu.call, i, &t) == 0; i++)
        if (t.role == ABL_INPUT && !t.whole)
            fill(cpu.tensors[i], gpu.tensors[i], t.count, i);
        else if (t.role == ABL_OUTPUT && t.has_gradient)
            fill(cpu.gradients[i], gpu.gradients[i], t.count, i);
    cpu.run(NULL);

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    gpu.run(stream);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&ready, graph, 0));
    check(cudaDeviceSynchronize()); /* the stream does not wait for the copies to the GPU */
    check(cudaGraphLaunch(ready, stream));
    check(cudaStreamSynchronize(stream));

    double worst = 0;
    for (int i = 0; abl_call_tensor(cpu.call, i, &t) == 0; i++)
        if (t.role == ABL_OUTPUT && !t.whole)
            worst = std::max(worst, difference(cpu.tensors[i], gpu.tensors[i], t.count));
        else if (t.role == ABL_INPUT && t.has_gradient)
            worst = std::max(worst, difference(cpu.gradients[i], gpu.gradients[i], t.count));
    printf("kernel %s on %s: the largest difference from ref32 is %.1e of the largest number\n",
           abl_call_kernel(gpu.call), abl_device("gpu32"), worst);
    /* A program that goes on frees the graph, then the calls and their memory. */
    return worst <= 1e-4 ? 0 : 1;
}
