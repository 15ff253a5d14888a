/* The element types that the safetensors format names. */
#include "train/checkpoint/safetensors.h"

#include <assert.h>
#include <string.h>

static const struct stored_type types[] = {
	{"F32", 32, TUTTI_F32},
	{"F64", 64, TUTTI_F64},
	{"F16", 16, TUTTI_F16},
	{"BF16", 16, TUTTI_BF16},
	{"F8_E4M3", 8, TUTTI_F8_E4M3},
	{"F8_E5M2", 8, TUTTI_F8_E5M2},
	{"I8", 8, TUTTI_I8},
	{"U8", 8, TUTTI_U8},
	{"I16", 16, TUTTI_I16},
	{"U16", 16, TUTTI_U16},
	{"I32", 32, TUTTI_I32},
	{"U32", 32, TUTTI_U32},
	{"I64", 64, TUTTI_I64},
	{"U64", 64, TUTTI_U64},
	{"BOOL", 8, -1},
	{"C64", 64, -1},
	{"F8_E8M0", 8, -1},
	{"F6_E2M3", 6, -1},
	{"F6_E3M2", 6, -1},
	{"F4", 4, -1},
};

enum { TYPES = sizeof types / sizeof *types };

const struct stored_type *stored_type_of(tutti_dtype dtype)
{
	for (int i = 0; i < TYPES; i++)
		if (types[i].dtype == (int)dtype)
			return &types[i];
	assert(!"a dtype that the format does not have");
	return NULL;
}

const struct stored_type *stored_type_named(const char *name)
{
	for (int i = 0; i < TYPES; i++)
		if (strcmp(types[i].name, name) == 0)
			return &types[i];
	return NULL;
}

bool stored_count(uint64_t *count, int ndim, const int64_t *shape)
{
	const uint64_t most = UINT64_C(1) << 62;
	uint64_t product = 1;

	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 0)
			return false;
		if (shape[i] > 0 && product > most / (uint64_t)shape[i])
			return false;
		product *= (uint64_t)shape[i];
	}
	*count = product;
	return true;
}
