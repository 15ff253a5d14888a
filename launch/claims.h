/* Cores that a living tuttirun has bound its ranks to: no other one binds ranks to them. */
#ifndef LAUNCH_CLAIMS_H
#define LAUNCH_CLAIMS_H

#include <stdbool.h>

/* Claims a name until the process ends or closes the descriptor, which is returned; -1: another
 * process has it. All users of a network namespace see each other's claims. */
int claim(const char *name);

#endif
