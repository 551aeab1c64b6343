/* write_ablation.h - what runs of training say of each other, as the tables /cells, /tests, /rates, /pairs and /sizes of their
 * file (ablation/tables.h). */
#ifndef WRITE_ABLATION_H
#define WRITE_ABLATION_H

#include <hdf5.h>

#include "common/ablation/ablation.h"

/* In place of those that an earlier run left.  Nonzero after err_set(). */
int ablation_write(hid_t file, const struct ablation *a);
/* Bytes that they take on disk, at most about. */
int64_t ablation_bytes(const struct ablation *a);

#endif
