/* stop.h - the signals by which a user ends the program: SIGINT, that of Ctrl-C, and SIGTERM. */
#ifndef STOP_H
#define STOP_H

/* Nonzero once one has come: what runs is to end early. */
extern volatile int stop;

/* From now on the first sets `stop`, and one that comes STOP_APART seconds after it, or later, ends the program at once.
 * What comes sooner is the same wish: timeout, for one, sends a signal to the program and then to its group. */
#define STOP_APART 0.5
void stop_on_signals(void);

#endif
