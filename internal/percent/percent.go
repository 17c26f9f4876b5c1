// SPDX-License-Identifier: Apache-2.0

// Package percent reads the numbers and percentages of the API (an int, or a string such as
// "20%" or "12.5%") and turns them into Pods. Admission and arithmetic share it, so that what
// is accepted is also what is computed with. It is pure. Source: cloneset.md 2.3.
package percent

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Rounding says what becomes of a part of a Pod.
type Rounding bool

// The two ways to round. Which one holds for a field is in cloneset.md 2.3.
const (
	Down Rounding = false
	Up   Rounding = true
)

var pattern = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?%$`)

// Check returns an error unless v is an int or a percentage, fractions allowed. A string
// without percent sign is refused, also "5". Negative ints pass.
func Check(v intstr.IntOrString) error {
	if v.Type == intstr.String && !pattern.MatchString(v.StrVal) {
		return fmt.Errorf(`%q is neither a number nor a percentage such as "20%%"`, v.StrVal)
	}
	return nil
}

// Of returns v as a number of Pods out of total. An int is returned as it is, also when it is
// larger than total or negative; a percentage beyond the range of int32 becomes its end.
func Of(v intstr.IntOrString, total int32, r Rounding) (int32, error) {
	if v.Type == intstr.Int {
		return v.IntVal, nil
	}
	if err := Check(v); err != nil {
		return 0, err
	}
	share, err := strconv.ParseFloat(strings.TrimSuffix(v.StrVal, "%"), 64)
	if err != nil && share == 0 { // out of range comes with an infinite share
		return 0, fmt.Errorf("reading %q: %w", v.StrVal, err)
	}
	exact := share * float64(total) / 100
	if total == 0 {
		exact = 0 // and not the NaN of an infinite share
	}
	// 7% of 300 is 21.000000000000004 in binary: what is that close to a whole is the whole.
	if whole := math.Round(exact); math.Abs(exact-whole) < 1e-9*math.Max(1, math.Abs(whole)) {
		exact = whole
	}
	if r == Up {
		exact = math.Ceil(exact)
	} else {
		exact = math.Floor(exact)
	}
	return int32(math.Max(math.MinInt32, math.Min(math.MaxInt32, exact))), nil
}
