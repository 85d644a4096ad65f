fn main() {
    for file in std::env::args().skip(1) {
        let problem = placement::Problem::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let placed = placement::place(&problem, std::time::Duration::from_secs(10)).unwrap();
        let a = placement::Answer::new(&problem, &placed);
        println!("{file}\t{:?}\t{:?}\t{:.4}\t{:?} {:?} {:?}", if a.feasible {a.accuracy} else {None}, a.bound.unwrap_or(-1.0), a.seconds, a.factor, a.factor_bound, a.violated);
    }
}
