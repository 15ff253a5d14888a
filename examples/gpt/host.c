/* The layers compute in host memory: nothing to do. */
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char place_program[] = "gpt", place_usage[] = "";

int place_open(struct options *options)
{
	const char *flag = options->matmul ? "--matmul" : options->flags.num_gpus ? "--gpus" : NULL;

	if (flag)
		fprintf(stderr, "gpt: %s is an option of gpt_cuda, which computes on GPUs\n", flag);
	return flag ? -1 : 0;
}

int place_device(void)
{
	return 0;
}

void *place_alloc(size_t bytes)
{
	return calloc(1, bytes);
}

void place_free(void *ptr)
{
	free(ptr);
}

void place_upload(void *to, const void *host, size_t bytes)
{
	memcpy(to, host, bytes);
}

const void *place_view(const void *from, size_t bytes)
{
	(void)bytes;
	return from;
}
