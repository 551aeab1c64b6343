/* until.h - the time by which a run is to have ended: nothing begins that would not.
 *
 * A trial takes its work (expected_work()) times the most seconds that a unit of that has taken until now, by trials that
 * ended.  Before the first has, any can begin. */
#ifndef EXPERIMENTS_UNTIL_H
#define EXPERIMENTS_UNTIL_H

struct until {
    double end;  /* seconds_now() then; 0: there is none */
    double most; /* seconds of a unit of work */
    int left;    /* trials were left, since they would not have ended */
};

/* From now on so long: "55m", "90s", "1.5h".  Nonzero after err_set(). */
int until_read(const char *text, struct until *to);
/* Can a trial of so much work begin? */
int until_fits(struct until *u, double work);
/* One ended. */
void until_ended(struct until *u, double work, double seconds);

#endif
