/* Errors on purpose: FAKE_CUDA_FAULTS="seed:what=n,what=n". Seed 0: at the n-th call; else at one
 * of the first n, which the seed chooses. FAKE_CUDA_FAULTS_RANK=n: in the process whose RANK that
 * is, alone. */
#include "tests/cuda/driver/driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	enum fault_place place;
	CUresult error;
} faults[] = {
	{"memory", FAULT_MEMORY, CUDA_ERROR_OUT_OF_MEMORY},
	{"launch_illegal", FAULT_LAUNCH, CUDA_ERROR_ILLEGAL_ADDRESS},
	{"launch_ecc", FAULT_LAUNCH, CUDA_ERROR_ECC_UNCORRECTABLE},
	{"copy_illegal", FAULT_COPY, CUDA_ERROR_ILLEGAL_ADDRESS},
	{"copy_ecc", FAULT_COPY, CUDA_ERROR_ECC_UNCORRECTABLE},
	{"ipc", FAULT_IPC, CUDA_ERROR_MAP_FAILED},
	{"multicast", FAULT_MULTICAST, CUDA_ERROR_OUT_OF_MEMORY},
	{"dma_buf", FAULT_DMA_BUF, CUDA_ERROR_OUT_OF_MEMORY},
	{"peer", FAULT_PEER, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED},
};
#define N_FAULTS (sizeof faults / sizeof *faults)

static unsigned long long fails_at[N_FAULTS]; /* 0: never */
static atomic_ullong calls[FAULT_PLACES];

static size_t find(const char *name)
{
	for (size_t i = 0; i < N_FAULTS; i++)
		if (strcmp(faults[i].name, name) == 0)
			return i;
	fprintf(stderr, "fake cuda: FAKE_CUDA_FAULTS has \"%s\"\n", name);
	abort();
}

static bool is_meant(void)
{
	const char *only = getenv("FAKE_CUDA_FAULTS_RANK"), *rank = getenv("RANK");

	return !only || (rank && strcmp(only, rank) == 0);
}

void faults_read(const char *text)
{
	unsigned long long seed, n;
	char name[32];
	int used;

	if (text == NULL || !is_meant() || sscanf(text, "%llu:%n", &seed, &used) != 1)
		return;
	for (text += used; sscanf(text, "%31[a-z_]=%llu%n", name, &n, &used) == 2;) {
		size_t i = find(name);
		unsigned long long x = (seed + i) * 0x9e3779b97f4a7c15;
		fails_at[i] = seed == 0 || n == 0 ? n : 1 + (x ^ x >> 29) % n;
		text += used;
		text += *text == ',';
	}
}

CUresult fault_here(enum fault_place place)
{
	unsigned long long n = atomic_fetch_add(&calls[place], 1) + 1;

	for (size_t i = 0; i < N_FAULTS; i++)
		if (faults[i].place == place && fails_at[i] == n)
			return faults[i].error;
	return CUDA_SUCCESS;
}
