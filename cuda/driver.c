/* Finds the driver and its functions, and puts its errors into words. */
#include "cuda/driver.h"

#include "core/dynamic_library.h"
#include "core/status.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

static struct cuda_driver functions;
static char missing[240]; /* why it is not there, or "" */

static void driver_load(void)
{
	static const struct dynamic_symbol symbols[] = {
#define SYMBOL(name, symbol, parameters) {#symbol, offsetof(struct cuda_driver, name), false},
		CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
#define SYMBOL(name, symbol, parameters) {#symbol, offsetof(struct cuda_driver, name), true},
			CUDA_NEWER_FUNCTIONS(SYMBOL)
#undef SYMBOL
	};
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	const char *lacks;

	if (!library) {
		snprintf(missing, sizeof missing, "%s", dlerror());
		return;
	}
	lacks = dynamic_library_fill(library, symbols, sizeof symbols / sizeof *symbols,
				     &functions);
	if (!lacks)
		return;
	snprintf(missing, sizeof missing, LIBRARY " has no %s: the driver is too old", lacks);
	dlclose(library);
}

static void driver_load_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, driver_load);
}

const struct cuda_driver *cuda_driver(void)
{
	driver_load_once();
	return missing[0] ? NULL : &functions;
}

const char *cuda_driver_missing(void)
{
	driver_load_once();
	return missing;
}

static const char *driver_symbol_of(const char *name)
{
#define SYMBOL(function, symbol, parameters)                                                       \
	if (strcmp(name, #function) == 0)                                                          \
		return #symbol;
	CUDA_FUNCTIONS(SYMBOL)
	CUDA_NEWER_FUNCTIONS(SYMBOL)
	CUDA_PROGRAM_FUNCTIONS(SYMBOL)
#undef SYMBOL
	return name;
}

tutti_status cuda_status(CUresult error, const char *call)
{
	const char *name = NULL, *text = NULL;
	tutti_status status =
		error == CUDA_ERROR_OUT_OF_MEMORY ? TUTTI_ERR_MEMORY : TUTTI_ERR_DEVICE;

	if (error == CUDA_SUCCESS)
		return TUTTI_OK;
	functions.get_error_name(error, &name);
	functions.get_error_string(error, &text);
	return fail(status, "%s failed with %s (%u: %s)", driver_symbol_of(call),
		    name ? name : "an unknown error", error, text ? text : "no text");
}
