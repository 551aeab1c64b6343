/* An operation forward and backward on tensors of your own, on the CPU; call.cu does it on a GPU.
 *
 *     cc call.c $(pkg-config --cflags --libs ablate) -o call
 *     ./call
 *     ./call 'softmax rows=3 columns=5'
 */
#include <ablate.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of an element. */
static const int64_t size_of[] = {
    [ABL_FP64] = 8, [ABL_FP32] = 4, [ABL_BF16] = 2, [ABL_FP16] = 2, [ABL_INT64] = 8};

static void stop(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(1);
}

/* At a multiple of 256 bytes, as a workspace must be; for a tensor a multiple of 16 is enough. */
static void *zeros(int64_t bytes)
{
    const size_t size = (size_t)(bytes + 255) / 256 * 256;
    void *p = aligned_alloc(256, size);
    if (!p)
        stop("no memory");
    return memset(p, 0, size);
}

/* Numbers from -0.5 to 0.5.  Indices, which are whole numbers, stay 0. */
static void fill(void *to, const struct abl_tensor *t, int seed)
{
    float *x = to;
    for (int64_t i = 0; !t->whole && i < t->count; i++)
        x[i] = (float)((37 * i + 13 * seed) % 101 - 50) / 100;
}

static void show(const char *before, const struct abl_tensor *t, const void *from)
{
    const float *x = from;
    printf("%s%s:", before, t->name);
    for (int64_t i = 0; !t->whole && i < t->count && i < 4; i++)
        printf(" %g", x[i]);
    printf("%s\n", t->count > 4 ? " ..." : "");
}

int main(int argc, char **argv)
{
    const char *words = argc > 1 ? argv[1] : "e74_cell steps=6 batch=2 heads=2 n_state=4";
    struct abl_tensor t;
    int n = 0;

    /* On ref32, the plain C in float.  NULL: the first kernel that accepts these sizes. */
    abl_call *call = abl_call_new(words, "ref32", 0, NULL);
    if (!call)
        stop(abl_error());
    while (abl_call_tensor(call, n, &t) == 0)
        n++;
    void **tensors = calloc(n, sizeof *tensors), **gradients = calloc(n, sizeof *gradients);
    if (!tensors || !gradients)
        stop("no memory");
    for (int i = 0; abl_call_tensor(call, i, &t) == 0; i++) {
        tensors[i] = zeros(t.count * size_of[t.dtype]);
        gradients[i] = t.has_gradient ? zeros(t.count * size_of[t.grad_dtype]) : NULL;
        if (t.role == ABL_INPUT)
            fill(tensors[i], &t, i);
        if (t.role == ABL_OUTPUT && t.has_gradient)
            fill(gradients[i], &t, i);
    }
    const int64_t forward = abl_call_workspace(call, ABL_FORWARD);
    const int64_t backward = abl_call_workspace(call, ABL_BACKWARD);
    const int64_t bytes = forward > backward ? forward : backward;
    void *workspace = bytes ? zeros(bytes) : NULL; /* for both: it keeps nothing between them */

    /* On the CPU there is no stream, and a pass is done when it returns. */
    if (abl_call_run(call, ABL_FORWARD, tensors, NULL, workspace, bytes, NULL) ||
        abl_call_run(call, ABL_BACKWARD, tensors, gradients, workspace, bytes, NULL))
        stop(abl_error());

    printf("%s\nkernel %s\n", abl_call_text(call), abl_call_kernel(call));
    for (int i = 0; abl_call_tensor(call, i, &t) == 0; i++) {
        if (t.role == ABL_OUTPUT)
            show("", &t, tensors[i]);
        if (t.role == ABL_INPUT && t.has_gradient)
            show("d_", &t, gradients[i]);
        free(tensors[i]);
        free(gradients[i]);
    }
    free(workspace);
    free(tensors);
    free(gradients);
    abl_call_free(call);
    return 0;
}
