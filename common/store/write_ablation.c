/* Writes what runs of training say of each other (write_ablation.h). */
#include "config.h"

#include <stdlib.h>

#include "common/ablation/tables.h"
#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/store/write_ablation.h"

static int put_table(hid_t file, const struct ablation_table *t)
{
    const hid_t row = h5_row_type(t->column, t->size);
    const hid_t packed = row < 0 ? -1 : H5Tcopy(row);
    const hsize_t n = (hsize_t)t->n;
    int e = packed < 0 || H5Tpack(packed) < 0;

    if (!e && H5Lexists(file, t->name, H5P_DEFAULT) > 0)
        e = H5Ldelete(file, t->name, H5P_DEFAULT) < 0;
    if (!e && n) {
        const hid_t d =
            h5_dataset_new(file, t->name, &(struct h5_data){packed, row, 1, &n, 0, t->row});
        e = d < 0;
        h5_drop(d);
    }
    h5_drop(packed);
    h5_drop(row);
    return e ? h5_cannot("write the table %s", t->name) : 0;
}

int ablation_write(hid_t file, const struct ablation *a)
{
    int e = 0;

    for (int i = TABLE_RUNS + 1; !e && i < ABLATION_TABLES; i++) {
        struct ablation_table t;
        e = ablation_table(a, i, &t) || put_table(file, &t);
        free(t.row);
    }
    return e ? -1 : 0;
}

int64_t ablation_bytes(const struct ablation *a)
{
    enum { HEADS = 1 << 16, OF_TEXTS = 256 };
    int64_t bytes = HEADS;

    for (int i = TABLE_RUNS + 1; i < ABLATION_TABLES; i++) {
        struct ablation_table t;
        if (!ablation_table(a, i, &t))
            bytes += t.n * (int64_t)(t.size + OF_TEXTS);
        free(t.row);
    }
    return bytes;
}
