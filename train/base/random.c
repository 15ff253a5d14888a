/* Counter-based random numbers and hashes: pure functions with the same results on every rank.
 *
 * tutti_random takes its four words in turn: it adds the word and the golden ratio, mixes with the
 * finalizer of SplitMix64 (Steele, Lea, Flood 2014), and returns the upper half of the last result.
 */
#include "train/base/base.h"

#include <tutti/train.h>

#include <math.h>
#include <string.h>

#define GOLDEN 0x9e3779b97f4a7c15u
/* A step that authors cannot reach, so that first values do not repeat the numbers of a step. */
#define INIT_STEP UINT64_MAX

uint64_t random_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint32_t tutti_random(uint64_t seed, uint64_t step, uint64_t stream, uint64_t index)
{
	uint64_t x = random_mix(seed + GOLDEN);
	x = random_mix(x + step + GOLDEN);
	x = random_mix(x + stream + GOLDEN);
	x = random_mix(x + index + GOLDEN);
	return (uint32_t)(x >> 32);
}

/* The transform of Box and Muller; one of its two results. */
double random_normal(uint64_t seed, int param, size_t index)
{
	uint64_t stream = (uint64_t)param;
	double u = (tutti_random(seed, INIT_STEP, stream, 2 * index) + 0.5) / 4294967296.0;
	double v = tutti_random(seed, INIT_STEP, stream, 2 * index + 1) / 4294967296.0;
	return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t random_hash(const void *data, size_t bytes)
{
	const unsigned char *next = data;
	uint64_t hash = random_mix(bytes + GOLDEN), word;

	for (; bytes >= sizeof word; bytes -= sizeof word, next += sizeof word) {
		memcpy(&word, next, sizeof word);
		hash = (hash ^ word) * 0xff51afd7ed558ccdu;
		hash ^= hash >> 32;
	}
	word = 0;
	if (bytes)
		memcpy(&word, next, bytes);
	return random_mix(hash ^ word);
}
