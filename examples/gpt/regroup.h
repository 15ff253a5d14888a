/* Which ranks train: at the start, and when some have died. */
#ifndef EXAMPLES_GPT_REGROUP_H
#define EXAMPLES_GPT_REGROUP_H

#include "run.h"

/* Makes run->comm. */
void join(struct run *run);
/* Ranks have died: a new run->comm of the others, and of those in the dead ones' place. */
void regroup(struct run *run);
/* run->next.mesh, and which part of a batch is this rank's. False: no replica has a place for it. */
bool take_place(struct run *run);
/* As a spare, until the others have ended. A death ends it as any call of must. */
void stand_by(struct run *run);
/* To be called in each step, so that all hear when a spare dies; and with true at the end. */
void tell_spares(struct run *run, bool has_ended);
/* The trainer, and what is on it. */
void drop(struct run *run);

#endif
