/* Where the layers compute: in host memory (host.c), or on one GPU (examples/gpt_cuda/gpu.c). A program links
 * one. Failures end the program with a message, but where a comment says otherwise. */
#ifndef EXAMPLES_GPT_PLACE_H
#define EXAMPLES_GPT_PLACE_H

#include "options.h"

#include <stddef.h>

/* The program's name, and what its usage says beside the options of all. */
extern const char place_program[], place_usage[];

/* Before tutti_init. Sets where the trainer's parameters are. Returns 0, or -1 after saying why. */
int place_open(struct options *options);
/* The GPU of this rank, as tutti_config.device has it; 0 for none. */
int place_device(void);
/* Zeros; NULL: there is no memory. */
void *place_alloc(size_t bytes);
/* NULL is allowed. */
void place_free(void *ptr);
/* The layers that come later see it. host may change at once. */
void place_upload(void *to, const void *host, size_t bytes);
/* The bytes there once the layers before have run, for the CPU to read until the next view. */
const void *place_view(const void *from, size_t bytes);

#endif
