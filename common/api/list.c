/* ablate.h's functions for what there is: the last error, the version, operations with their parameters
 * and tensors, backends, kernels. */
#include "config.h"

#include <string.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/plan/programs.h"

/* ---- errors and names ---- */

const char *abl_error(void)
{
    return err_text();
}

const char *abl_version(void)
{
    return PACKAGE_VERSION;
}

int pass_find(const char *function, int64_t given, enum pass *p)
{
    if (given != ABL_FORWARD && given != ABL_BACKWARD)
        return err_set("%s: there is no pass %lld, only %d, forward, and %d, backward", function,
                       (long long)given, ABL_FORWARD, ABL_BACKWARD);
    *p = given == ABL_FORWARD ? FORWARD : BACKWARD;
    return 0;
}

const struct op *find_op(const char *name)
{
    if (program_file(name))
        return program_load(program_file(name));
    const struct op *o = op_find(name);
    if (!o)
        err_set("there is no operation %s", name);
    return o;
}

const struct backend *find_backend(const char *name)
{
    const struct backend *b = backend_find(name);
    if (!b)
        err_set("there is no backend %s in this build", name);
    return b;
}

/* ---- what there is ---- */

const char *abl_op(int i)
{
    return i >= 0 && i < N_OPS ? ops[i]->name : NULL;
}

const char *abl_formula(const char *op)
{
    const struct op *o = OP_NAMED(op);
    return o ? o->formula : NULL;
}

const char *abl_source(const char *op)
{
    const struct op *o = OP_NAMED(op);
    return o ? o->source : NULL;
}

int abl_param(const char *op, int i, struct abl_param *to)
{
    const struct op *o = IS_NULL(to, "destination") ? NULL : OP_NAMED(op);
    if (!o)
        return -1;
    if (i < 0 || i >= o->n_params)
        return 1;
    const struct param *p = &o->param[i];
    *to = (struct abl_param){.name = p->name,
                             .help = p->help,
                             .choices = p->choices,
                             .initial = p->initial,
                             .min = p->min,
                             .max = p->max};
    if (p->real) {
        to->real = 1;
        to->real_initial = p->real->initial;
        to->real_min = p->real->min;
        to->real_max = p->real->max;
    }
    return 0;
}

static enum abl_dtype dtype_of(enum dtype t)
{
    static const enum abl_dtype of[N_DTYPES] = {
        [F64] = ABL_FP64, [F32] = ABL_FP32,  [BF16] = ABL_BF16,
        [F16] = ABL_FP16, [I64] = ABL_INT64, [U8] = ABL_UINT8,
    };
    return of[t];
}

const char *abl_dtype_name(int i)
{
    if (i == ABL_NO_DTYPE)
        return "";
    for (int t = 0; t < N_DTYPES; t++)
        if ((int)dtype_of((enum dtype)t) == i)
            return types[t].name;
    return NULL;
}

void describe_types(const struct call *f, int arg, struct abl_tensor *to)
{
    to->dtype = dtype_of((enum dtype)f->type[arg]);
    to->grad_dtype = to->has_gradient ? dtype_of((enum dtype)f->grad_type[arg]) : ABL_NO_DTYPE;
}

void describe_tensor(const struct op *o, const struct call *f, int arg, struct abl_tensor *to)
{
    const struct arg *a = &o->arg[arg];
    const char *shape = op_shape(f, arg);

    *to = (struct abl_tensor){
        .name = a->name,
        .rank = (int)strlen(shape),
        .has_gradient = !!(a->flags & DIFF),
        .role = a->flags & IN    ? ABL_INPUT
                : a->flags & OUT ? ABL_OUTPUT
                                 : ABL_SAVED,
        .count = op_count(f, arg),
        .whole = !!(a->flags & WHOLE),
        .state = a->flags & IN && a->fill == ZERO && !a->fill_of && !a->draw && !(a->flags & BYTES),
        .bytes = !!(a->flags & BYTES),
        .settled = a->settled,
        .overwrites = a->overwrites,
    };
    for (int i = 0; i < to->rank; i++) {
        to->axis[i] = op_axis(o, shape[i]);
        to->size[i] = DIM(f, shape[i]);
    }
}

int abl_op_tensor(const char *op, int i, struct abl_tensor *to)
{
    const struct op *o = IS_NULL(to, "destination") ? NULL : OP_NAMED(op);
    struct call f;
    if (!o)
        return -1;
    if (i < 0 || i >= o->n_args)
        return 1;
    op_defaults(o, &f);
    describe_tensor(o, &f, i, to);
    to->count = 0;
    memset(to->size, 0, sizeof to->size);
    return 0;
}

const char *abl_backend(int i)
{
    const struct backend *const *b = backends();
    while (*b && i-- > 0)
        b++;
    return *b && i <= 0 ? (*b)->name : NULL;
}

const char *abl_backend_dtype(const char *backend)
{
    const struct backend *b = BACKEND_NAMED(backend);
    return b ? types[b->type].name : NULL;
}

const char *abl_backend_machine(const char *backend)
{
    const struct backend *b = BACKEND_NAMED(backend);
    return b ? b->machine->name : NULL;
}

const char *abl_unavailable(const char *backend)
{
    const struct backend *b = BACKEND_NAMED(backend);
    if (!b || lock_library())
        return err_text();
    const char *why = backend_unavailable(library_contexts(), b);
    unlock_library();
    return why;
}

int abl_use(const char *backend, int number)
{
    const struct backend *b = BACKEND_NAMED(backend);
    if (!b || lock_library())
        return -1;
    const char *why = context_use(library_contexts(), b, number);
    unlock_library();
    return why ? err_set("%s: device %d: %s", backend, number, why) : 0;
}

const char *abl_device(const char *backend)
{
    const struct backend *b = BACKEND_NAMED(backend);
    if (!b || lock_library())
        return NULL;
    const char *device = backend_device(library_contexts(), b);
    unlock_library();
    return device;
}

const char *abl_kernel(const char *op, const char *backend, int i)
{
    const struct op *o = OP_NAMED(op);
    const struct backend *b = o ? BACKEND_NAMED(backend) : NULL;
    const struct impl *k = b && i >= 0 ? op_kernel(o, b, i) : NULL;
    return k ? k->name : NULL;
}

const char *abl_kernel_idea(const char *op, const char *backend, int i)
{
    const struct op *o = OP_NAMED(op);
    const struct backend *b = o ? BACKEND_NAMED(backend) : NULL;
    const struct impl *k = b && i >= 0 ? op_kernel(o, b, i) : NULL;
    return k ? k->idea : NULL;
}
