/* Cores that a living job has bound its ranks to: no other one binds ranks to them. */
#ifndef CORE_RANK_CLAIMS_H
#define CORE_RANK_CLAIMS_H

/* Claims a name until the process ends or closes the descriptor, which is returned; -1: another
 * process has it. All users of a network namespace see each other's claims. */
int rank_claim(const char *name);
/* The same for a core: the first of its CPUs that the job may use. */
int claim_cpu(int cpu);

#endif
