/* The table of tutti-top: a line for each rank of each communicator. */
#ifndef TUTTI_TOP_ROWS_H
#define TUTTI_TOP_ROWS_H

#include "tools/attach.h"

/* All that was read at one time. */
struct sample {
	int64_t ns;
	struct log log;
};

/* now, and what has happened since before. */
void sample_print(const struct sample *before, const struct sample *now, FILE *file);
/* The same as a JSON document. */
void sample_print_json(const struct sample *before, const struct sample *now, FILE *file);

#endif
