/* How many ranks a machine takes when the number is "auto". */
#ifndef CORE_WORDS_AUTOMATIC_H
#define CORE_WORDS_AUTOMATIC_H

#include "core/words/export.h"

/* GPUs of this machine that ranks may use, or 0. It loads no driver. */
int automatic_gpus(void) TUTTI_PRIVATE(automatic_gpus);
/* CPUs that this process may use, 1 at least. */
int automatic_cpus(void) TUTTI_PRIVATE(automatic_cpus);

#endif
