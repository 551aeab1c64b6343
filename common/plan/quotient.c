/* A size that is a number divided by another size (quotient.h). */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/number.h"
#include "common/plan/quotient.h"

static const char blanks[] = " \t";

const char *quotient_key(const char *value)
{
    const size_t digits = strspn(value, "0123456789");
    const char *slash = value + digits + strspn(value + digits, blanks);

    return digits && *slash == '/' ? slash + 1 + strspn(slash + 1, blanks) : NULL;
}

/* N of N / KEY. */
static int dividend(const char *value, int64_t *n)
{
    char text[32];

    snprintf(text, sizeof text, "%.*s", (int)strspn(value, "0123456789"), value);
    return number_whole(text, 1, INT64_MAX, n);
}

int quotient_check(const struct op *o, const char *key, const char *value)
{
    const char *by = quotient_key(value);
    const struct param *param = op_param(o, key, NULL), *other = op_param(o, by, NULL);
    int64_t n;

    if (!param || !param->letter)
        return err_set("%s = %s: it is not a size, and has no N / KEY", key, value);
    if (!other || !other->letter)
        return err_set("%s = %s: %s has no size '%s'", key, value, o->name, by);
    if (other == param)
        return err_set("%s = %s: a size cannot depend on itself", key, value);
    return dividend(value, &n) ? err_at("%s = %s", key, value) : 0;
}

int quotient_set(struct call *f, const char *key, const char *value)
{
    const struct param *other = op_param(f->op, quotient_key(value), NULL);
    char number[32];
    int64_t n;

    if (other->unless && other->unless(f))
        return err_set("%s = %s: %s: %s", key, value, other->name, other->unless(f));
    const int64_t by = DIM(f, other->letter);
    if (dividend(value, &n) || by < 1)
        return err_set("%s = %s: %s is %" PRId64, key, value, other->name, by);
    snprintf(number, sizeof number, "%" PRId64, n / by);
    return op_set(f, key, number)
               ? err_at("%s = %s, where %s is %" PRId64, key, value, other->name, by)
               : 0;
}
