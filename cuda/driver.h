/* The driver, libcuda.so.1, loaded at run time. */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include "core/words/export.h"

#include "cuda/api.h"

#include <tutti/tutti.h>

struct cuda_driver {
#define CUDA_MEMBER(name, symbol, parameters) CUresult(*name) parameters;
	CUDA_FUNCTIONS(CUDA_MEMBER)
	CUDA_NEWER_FUNCTIONS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

/* Loaded by the first call, and kept. NULL: there is none. Any thread. */
const struct cuda_driver *cuda_driver(void) TUTTI_PRIVATE(cuda_driver);
/* Why there is none: a clause for messages. "" where there is one. */
const char *cuda_driver_missing(void) TUTTI_PRIVATE(cuda_driver_missing);

/* error as a status, with a message that begins with call, a function's name. OK for success. */
tutti_status cuda_status(CUresult error, const char *call) TUTTI_PRIVATE(cuda_status);
/* Calls function of the driver that this scope has as cuda, and passes a failure up. */
#define CUDA_TRY(function, ...) TRY(cuda_status(cuda->function(__VA_ARGS__), #function))

#endif
