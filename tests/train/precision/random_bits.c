#include "tests/train/precision/random_bits.h"

#include <string.h>

uint64_t random_state;

uint64_t random_u64(void)
{
	random_state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t z = random_state;
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

size_t random_below(size_t n)
{
	return (size_t)(random_u64() % n);
}

float of_bits(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}
