/* Judy beside stream windows: benchmarks/windows.py builds and runs it.
 *
 *     windows_judy KEYS COUNT ASKED RANGES
 *
 * KEYS has COUNT different keys, the keys that are asked for, and pairs of the first and the last key of
 * each range, as uint32. Prints nanoseconds: insert, get, range (a key), delete; bytes a key; and a sum,
 * so that nothing is left out.
 */
#include <Judy.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	size_t count = strtoull(argv[2], 0, 10), asked = strtoull(argv[3], 0, 10), ranges = strtoull(argv[4], 0, 10);
	size_t all = count + asked + 2 * ranges;
	uint32_t *keys = malloc(all * sizeof *keys);
	FILE *file = fopen(argv[1], "rb");
	if (!keys || !file || fread(keys, sizeof *keys, all, file) != all)
		return 1;
	fclose(file);
	Pvoid_t judy = 0;
	PWord_t value;
	uint64_t sum = 0, found = 0;
	int removed;
	double begun = now();
	for (size_t i = 0; i < count; i++) {
		JLI(value, judy, keys[i]);
		*value = i & 127;
	}
	double insert = (now() - begun) / count;
	Word_t bytes;
	JLMU(bytes, judy);
	begun = now();
	for (size_t i = 0; i < asked; i++) {
		JLG(value, judy, keys[count + i]);
		sum += *value;
	}
	double get = (now() - begun) / asked;
	begun = now();
	for (size_t i = 0; i < ranges; i++) {
		Word_t key = keys[count + asked + 2 * i], last = keys[count + asked + 2 * i + 1];
		JLF(value, judy, key);
		while (value && key <= last) {
			sum += *value;
			found++;
			JLN(value, judy, key);
		}
	}
	double range = (now() - begun) / (found ? found : 1);
	begun = now();
	for (size_t i = 0; i < count; i++)
		JLD(removed, judy, keys[i]);
	double remove = (now() - begun) / count;
	printf("%f %f %f %f %f %llu\n", insert, get, range, remove, (double)bytes / count, (unsigned long long)sum);
	return 0;
}
