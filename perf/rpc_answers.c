/* Payloads of rpc_perf, and what their answers must be. */
#include "rpc_perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t rpc_perf_digest(const uint8_t *data, size_t bytes)
{
	uint64_t digest = bytes, word;
	size_t step = bytes / RPC_PERF_SAMPLES;

	for (size_t i = 0; i < RPC_PERF_SAMPLES && step >= sizeof word; i++) {
		memcpy(&word, data + i * step, sizeof word);
		digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
	}
	return digest;
}

void rpc_perf_fill(uint8_t *data, uint64_t number)
{
	for (size_t i = 0; i < RPC_PERF_SHORT; i += sizeof number, number = number * 5 + 1)
		memcpy(data + i, &number, sizeof number);
}

int rpc_perf_differs(const char *who, const uint8_t *data, uint64_t number)
{
	uint8_t expected[RPC_PERF_SHORT];

	rpc_perf_fill(expected, number);
	if (memcmp(data, expected, sizeof expected) == 0)
		return 0;
	fprintf(stderr, "rpc_perf: %s: the answer of call %llu is wrong\n", who,
		(unsigned long long)number);
	exit(1);
}
