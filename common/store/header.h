/* header.h - the description of an experiment in its dump: written, and compared with the experiment
 * that is to be run.
 *
 *     /             schema, version, name, seed, ini, source, host, device, compiler, date,
 *                   n_trials, plan: a hash of the lines; inputs_only: nothing ran;
 *                   measure, checks, directions, repeats, save, compress, backends
 *     /trial/0003   line: the trial in words; contents: of the file that it reads
 *
 * Two runs have the same plan if the keys of [experiment] that decide what is
 * in the file, and all trials in words, are the same; comments do not count. */
#ifndef HEADER_H
#define HEADER_H

#include <hdf5.h>

#include "common/base/column.h"
#include "common/base/file.h"
#include "common/plan/plan.h"
#include "common/plan/programs.h"

/* The device that each backend of x would run on now, one line per backend. */
void header_device(const struct experiment *x, char *text, size_t size);
/* The attributes of the root; nonzero after err_set(). */
int header_write(hid_t root, const struct experiment *x);

/* Of these, those that say what plan a file is of, name, plan and the keys; nonzero after err_set(). */
int header_put_plan(hid_t root, const struct experiment *x);
/* Are they those of x?  Nonzero after err_set(), "holds another plan: ...". */
int header_same_plan(hid_t root, const struct experiment *x);

/* The contents of a trial's input file as a text (file.h): of a corpus as the plan has read it, of others as they are now.
 * Nonzero after err_set(). */
int header_contents(const struct trial *t, char contents[MAX_CONTENTS]);

enum { HEADER_SCHEMA = 2 }; /* of what is written */
/* The version of the schema of the file that `at` is in, from 1; 0 after
 * err_set(): it is none of ours. */
int header_schema(hid_t at);

/* Copies a list of columns, with the names that a file of that schema has for them, to at most `max`
 * columns, the end among them; nonzero after err_set(). */
int header_columns(const struct column *from, int schema, struct column to[], int max);
/* A dump opened for reading; -1 after err_set(). */
hid_t header_open(const char *name);

enum same { SAME_PLAN, OTHER_PLAN, NOT_OURS };
/* How the plan of an open file compares with that of x; err_set() says how
 * they differ, or why it is none of ours. */
enum same header_same(hid_t file, const struct experiment *x);
/* Do the files that trials read hold what they held then?  Nonzero after err_set(). */
int header_same_inputs(hid_t file, const struct experiment *x);

/* Are the lines of the trials those whose hash the root has?  Nonzero after err_set(): they are not; 1:
 * the root has none, as in older dumps. */
int header_same_lines(hid_t file);

/* How many trials there are, from 0 to MAX_TRIALS, and how many of them are
 * finished; -1 after err_set(): it is damaged, so that they cannot be counted. */
int header_trials(hid_t file);
int header_finished(hid_t file);
/* The group of trial i, from 0; -1 after err_set(). */
hid_t header_trial(hid_t file, int i);
/* Is the group that of trial i, which is t, by its line, its program, and how it is judged?  Nonzero after err_set(),
 * "holds another plan: ...". */
int header_same_trial(hid_t trial, const struct trial *t, int i);
/* The attribute of a trial of a program that has its calls: whoever reads the trial needs no file. */
#define PROGRAM_TEXT "program_text"
/* Adds that of a trial, under the name of its file, if it has one; nonzero after err_set(). */
int header_program(hid_t trial, struct program_texts *to);
/* Those of all trials of a dump. */
int header_programs(hid_t file, struct program_texts *to);
/* The attribute `judged` of a trial that is judged by a sample; others have none. */
#define JUDGED_BY_SAMPLE "sampled"
/* Is it complete?  -1 after err_set(). */
int header_complete(hid_t trial);

#endif
