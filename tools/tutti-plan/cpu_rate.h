/* The speed of a core of this machine. */
#ifndef TUTTI_PLAN_CPU_RATE_H
#define TUTTI_PLAN_CPU_RATE_H

/* Operations a second in a product of f32 matrices, the best of a few: it takes a tenth of a second. */
double cpu_rate_measure(void);

#endif
